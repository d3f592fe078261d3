#include "frontend/configs/setting.h"
#include "ir/usage_error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/YAMLParser.h"

namespace fsdpc {

namespace {

using Kind = Setting::Kind;

class YamlReader {
public:
  YamlReader(llvm::StringRef path, llvm::StringRef text) : path(path), text(text), stream(text, sources, false) {
    sources.setDiagHandler(
        [](const llvm::SMDiagnostic &diagnostic, void *into) {
          if (auto &first = *static_cast<std::string *>(into); first.empty())
            first = (llvm::Twine(diagnostic.getLineNo()) + ": " + diagnostic.getMessage()).str();
        },
        &problem);
  }

  llvm::Expected<Setting> read() {
    Setting root;
    llvm::Error error = readRoot(root);
    if (!stream.failed())
      return error ? llvm::Expected<Setting>(std::move(error)) : llvm::Expected<Setting>(std::move(root));
    llvm::consumeError(std::move(error));
    return usage(path + ":" + problem);
  }

private:
  static llvm::Error usage(const llvm::Twine &message) {
    return llvm::make_error<UsageError>(("--config " + message).str());
  }

  llvm::Error tooMany() const {
    return usage(path + ": has more than " + llvm::Twine(maxConfigSettings) +
                 " values, with those that aliases repeat");
  }

  llvm::Error readRoot(Setting &root) {
    llvm::yaml::Node *node = stream.begin()->getRoot();
    if (!llvm::isa_and_nonnull<llvm::yaml::MappingNode>(node))
      return usage(path + (problem.empty() ? ": " : ":" + problem + ": ") +
                   "a mapping of option names to values is expected, NAME: VALUE in each line");
    return fill(root, node, 0);
  }

  /// Nodes come in the order of the file, so lines are counted once.
  std::string placeOf(const llvm::yaml::Node &node) {
    const char *at = node.getSourceRange().Start.getPointer();
    if (at < text.begin() || at > text.end())
      return path.str();
    if (at < counted) {
      counted = text.begin();
      line = 1;
    }
    line += std::count(counted, at, '\n');
    counted = at;
    return (path + ":" + llvm::Twine(line)).str();
  }

  llvm::Error fill(Setting &into, llvm::yaml::Node *node, unsigned depth) {
    if (++settings > maxConfigSettings)
      return tooMany();
    if (depth > maxConfigDepth)
      return usage(into.where + ": lists and mappings are more than " + llvm::Twine(maxConfigDepth) + " deep");
    if (llvm::Error error = fillKind(into, node, depth))
      return error;
    if (node && !node->getAnchor().empty())
      anchors[node->getAnchor()] = into;
    return llvm::Error::success();
  }

  llvm::Error fillKind(Setting &into, llvm::yaml::Node *node, unsigned depth) {
    if (auto *alias = llvm::dyn_cast_or_null<llvm::yaml::AliasNode>(node))
      return copyAnchor(into, alias->getName());
    if (auto *block = llvm::dyn_cast_or_null<llvm::yaml::BlockScalarNode>(node)) {
      into.kind = Kind::scalar;
      into.text = block->getValue().str();
    }
    if (auto *scalar = llvm::dyn_cast_or_null<llvm::yaml::ScalarNode>(node)) {
      llvm::SmallString<64> storage;
      into.kind = Kind::scalar;
      into.text = scalar->getValue(storage).str();
    }
    if (auto *sequence = llvm::dyn_cast_or_null<llvm::yaml::SequenceNode>(node))
      return fillList(into, *sequence, depth);
    if (auto *mapping = llvm::dyn_cast_or_null<llvm::yaml::MappingNode>(node))
      return fillMapping(into, *mapping, depth);
    return llvm::Error::success();
  }

  llvm::Error fillList(Setting &into, llvm::yaml::SequenceNode &sequence, unsigned depth) {
    into.kind = Kind::list;
    for (llvm::yaml::Node &item : sequence) {
      Setting value;
      value.where = placeOf(item);
      if (llvm::Error error = fill(value, &item, depth + 1))
        return error;
      into.items.push_back(std::move(value));
    }
    return llvm::Error::success();
  }

  llvm::Error fillMapping(Setting &into, llvm::yaml::MappingNode &mapping, unsigned depth) {
    into.kind = Kind::mapping;
    std::vector<Setting> merged;
    for (llvm::yaml::KeyValueNode &entry : mapping) {
      llvm::SmallString<64> storage;
      auto *key = llvm::dyn_cast_or_null<llvm::yaml::ScalarNode>(entry.getKey());
      if (!key || stream.failed())
        return usage(placeOf(entry) + ": a key is not a name");
      Setting value;
      value.where = placeOf(*key);
      value.name = key->getValue(storage).str();
      if (llvm::Error error = fill(value, entry.getValue(), depth + 1))
        return error;
      (value.name == "<<" ? merged : into.items).push_back(std::move(value));
    }
    llvm::StringSet<> own;
    for (size_t i = 0; i < into.items.size() && !merged.empty(); ++i)
      own.insert(into.items[i].name);
    for (const Setting &source : merged)
      merge(into, source, own);
    return llvm::Error::success();
  }

  llvm::Error copyAnchor(Setting &into, llvm::StringRef name) {
    auto anchor = anchors.find(name);
    if (anchor == anchors.end())
      return usage(into.where + ": *" + name + " names no anchor before it");
    if (settings += sizeOf(anchor->second); settings > maxConfigSettings)
      return tooMany();
    into.kind = anchor->second.kind;
    into.text = anchor->second.text;
    into.items = anchor->second.items;
    return llvm::Error::success();
  }

  static size_t sizeOf(const Setting &setting) {
    size_t size = 1;
    for (const Setting &item : setting.items)
      size += sizeOf(item);
    return size;
  }

  /// Adds what the mapping does not have by itself.
  static void merge(Setting &into, const Setting &source, llvm::StringSet<> &own) {
    for (const Setting &item : source.items)
      if (source.kind == Kind::list)
        merge(into, item, own);
      else if (own.insert(item.name).second)
        into.items.push_back(item);
  }

  llvm::StringRef path, text;
  std::string problem;
  llvm::SourceMgr sources;
  llvm::yaml::Stream stream;
  llvm::StringMap<Setting> anchors;
  const char *counted = text.begin();
  int64_t line = 1;
  size_t settings = 0;
};

} // namespace

llvm::Expected<Setting> readYaml(llvm::StringRef path, llvm::StringRef text) { return YamlReader(path, text).read(); }

} // namespace fsdpc
