#include "ir/name_pattern.h"

#include "ir/usage_error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace fsdpc {

namespace {

constexpr size_t maxShown = 6;

/// A regular expression without its operators.
std::string plainText(llvm::StringRef text) {
  std::string plain;
  llvm::copy_if(text, std::back_inserter(plain), [](char c) { return !llvm::StringRef("\\^$*+?()[]{}|").contains(c); });
  return plain;
}

/// How far `plain` is from the part of `name` that is nearest to it and has as many dots, so that `q_prj` is near
/// `model.layers.0.self_attn.q_proj`.
unsigned distanceToPart(llvm::StringRef plain, llvm::StringRef name) {
  const size_t dots = plain.count('.');
  unsigned best = plain.edit_distance(name);
  for (llvm::StringRef rest = name; !rest.empty(); rest = rest.split('.').second) {
    size_t end = rest.find('.');
    for (size_t i = 0; i < dots && end != llvm::StringRef::npos; ++i)
      end = rest.find('.', end + 1);
    best = std::min(best, plain.edit_distance(rest.take_front(end)));
  }
  return best;
}

/// All names in their order if they are few, else the nearest ones, sorted by distance.
std::vector<std::string> nearest(llvm::ArrayRef<std::string> names, llvm::StringRef text) {
  if (names.size() <= maxShown)
    return names.vec();
  const std::string plain = llvm::StringRef(plainText(text)).trim('.').str();
  std::vector<std::pair<unsigned, size_t>> distances;
  for (size_t i = 0; i < names.size(); ++i)
    distances.emplace_back(distanceToPart(plain, names[i]), i);
  std::partial_sort(distances.begin(), distances.begin() + maxShown, distances.end());
  std::vector<std::string> shown;
  for (size_t i = 0; i < maxShown; ++i)
    shown.push_back(names[distances[i].second]);
  return shown;
}

} // namespace

llvm::Expected<NamePattern> NamePattern::make(llvm::StringRef option, llvm::StringRef text) {
  NamePattern pattern;
  pattern.option = option.str();
  pattern.text = text.str();
  pattern.whole = llvm::Regex(("^(" + text + ")$").str());
  std::string why;
  // Checks the text alone first: "a)(b" is invalid, but would be valid in parentheses.
  if (!text.empty() && (!llvm::Regex(text).isValid(why) || !pattern.whole.isValid(why)))
    return llvm::make_error<UsageError>(("--" + option + " " + text + ": no regular expression: " + why).str());
  return pattern;
}

llvm::Error NamePattern::matchesNone(llvm::StringRef kind, llvm::ArrayRef<std::string> names) const {
  llvm::Regex anywhere(text);
  const bool isInside = llvm::any_of(names, [&](const std::string &name) { return anywhere.match(name); });
  std::string message = "--" + option + " " + text + ": the full name of no " + kind.str() + " matches";
  if (isInside)
    message += " (did you mean '.*" + text + ".*'?)";
  if (names.empty())
    return llvm::make_error<UsageError>(message + "; there is none");
  message += names.size() <= maxShown ? "; there are " : "; nearest of " + std::to_string(names.size()) + " are ";
  return llvm::make_error<UsageError>(message + llvm::join(nearest(names, text), ", "));
}

} // namespace fsdpc
