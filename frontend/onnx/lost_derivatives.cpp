#include "frontend/onnx/complete.h"

#include "frontend/onnx/metadata.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc {

namespace {

constexpr llvm::StringRef call = ".apply(";

struct KnownFunction {
  llvm::StringRef file, name;
};

/// Functions of widely used libraries whose source was checked: their backward() is the derivative of their forward(),
/// written to use less memory.
constexpr KnownFunction exactFunctions[] = {
    {"transformers/models/bloom/modeling_bloom.py", "GeLUFunction"},
    {"timm/layers/activations_me.py", "SwishAutoFn"},
    {"timm/layers/activations_me.py", "MishAutoFn"},
    {"timm/layers/activations_me.py", "HardSigmoidAutoFn"},
    {"timm/layers/activations_me.py", "HardSwishAutoFn"},
    {"timm/layers/activations_me.py", "HardMishAutoFn"},
};

/// The last name of a dotted one at the end of the text: "    x = module.RoundedSum" -> "RoundedSum".
llvm::StringRef lastName(llvm::StringRef text) {
  size_t begin = text.size();
  while (begin > 0 && (llvm::isAlnum(text[begin - 1]) || text[begin - 1] == '_'))
    --begin;
  return text.drop_front(begin);
}

/// `frame`: File ".../activations_me.py", line 37, in forward.
bool isExact(llvm::StringRef name, llvm::StringRef frame) {
  return llvm::any_of(exactFunctions, [&](const KnownFunction &known) {
    return known.name == name && frame.contains((known.file + "\"").str());
  });
}

/// The class whose `apply` called the `forward` of the next frame in a stack trace, outermost frame first; "" if there
/// is none. Only calls on a class belong to a torch.autograd.Function.
llvm::StringRef appliedFunction(llvm::StringRef trace) {
  for (size_t at = trace.find(call); at != llvm::StringRef::npos; at = trace.find(call, at + call.size())) {
    const llvm::StringRef name = lastName(trace.take_front(at));
    const llvm::StringRef nextFrame = trace.drop_front(at).split('\n').second.split('\n').first;
    if (!name.empty() && llvm::isUpper(name.front()) && nextFrame.ends_with(", in forward") &&
        !isExact(name, nextFrame))
      return name;
  }
  return {};
}

} // namespace

std::vector<LostParameter> findLostDerivatives(const onnx::GraphProto &graph) {
  std::vector<LostParameter> lost;
  llvm::StringSet<> seen;
  for (const onnx::NodeProto &node : graph.node())
    if (const llvm::StringRef name = appliedFunction(metadataOf(node, sourceKey));
        !name.empty() && seen.insert(name).second)
      lost.push_back({name.str(), "is a torch.autograd.Function with a derivative of its own, which is not in the file",
                      /*isFunction=*/true});
  return lost;
}

} // namespace fsdpc
