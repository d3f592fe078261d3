// Einsum, as one matmul per pair of operands.
#include "frontend/onnx/translate/node_translation.h"
#include "frontend/onnx/translate/table.h"
#include "llvm/ADT/DenseMap.h"
#include <algorithm>

namespace fsdpc {

namespace {

/// A value and the letter of each of its axes. The axes of an ellipsis are '0' to '9', counted from the last.
struct Term {
  std::string letters;
  Value *value;
};

struct Equation {
  llvm::SmallVector<Term, 4> terms;
  std::string result;
};

/// "...ij" for rank 4 is "10ij".
std::string lettersOf(llvm::StringRef text, int64_t ellipsisAxes) {
  auto [before, after] = text.split("...");
  std::string letters = before.str();
  if (text.contains("..."))
    for (int64_t i = ellipsisAxes; i-- > 0;)
      letters += static_cast<char>('0' + i);
  letters += after.str();
  return letters;
}

/// The first letter that occurs again, or npos.
size_t firstRepeated(llvm::StringRef letters) {
  for (size_t i = 0; i < letters.size(); ++i)
    if (letters.find(letters[i], i + 1) != llvm::StringRef::npos)
      return i;
  return llvm::StringRef::npos;
}

/// Takes the diagonal of axes with the same letter: merges both axes and takes every (n + 1)-th element.
Term diagonal(NodeTranslation &t, Term term) {
  for (size_t i; (i = firstRepeated(term.letters)) != llvm::StringRef::npos;) {
    char letter = term.letters[i];
    size_t k = term.letters.find(letter, i + 1);
    int64_t rank = term.value->type().rank(), first = static_cast<int64_t>(i), second = static_cast<int64_t>(k);
    int64_t size = term.value->type().dim(first);
    if (term.value->type().dim(second) != size)
      t.reject("an axis named twice has two sizes in " + toString(term.value->type()));
    Value *square = t.moveAxis(t.moveAxis(term.value, second, rank - 1), first, rank - 2);
    Shape shape(square->type().shape().drop_back(1));
    shape.back() = size * size;
    term.value = t.slice(t.reshape(square, shape), rank - 2, 0, size, size > 1 ? size + 1 : 1);
    term.letters.erase(k, 1);
    term.letters.erase(i, 1);
    term.letters += letter;
  }
  return term;
}

/// Drops an axis of one element if another operand has more: the element multiplies all of those.
void dropBroadcastAxes(NodeTranslation &t, llvm::MutableArrayRef<Term> terms) {
  llvm::SmallDenseMap<char, int64_t> widest;
  for (const Term &term : terms)
    for (size_t i = 0; i < term.letters.size(); ++i)
      widest[term.letters[i]] = std::max(widest[term.letters[i]], term.value->type().dim(static_cast<int64_t>(i)));
  for (Term &term : terms)
    for (size_t i = term.letters.size(); i-- > 0;) {
      Shape shape(term.value->type().shape());
      if (shape[i] != 1 || widest[term.letters[i]] == 1)
        continue;
      shape.erase(shape.begin() + static_cast<int64_t>(i));
      term.value = t.reshape(term.value, shape);
      term.letters.erase(i, 1);
    }
}

int64_t ellipsisAxesOf(llvm::StringRef text, const Value *value) {
  return text.contains("...") ? value->type().rank() - static_cast<int64_t>(text.size()) + 3 : 0;
}

/// Without an arrow the result has the ellipsis and the letters that occur once, in alphabetical order.
std::string impliedResult(llvm::StringRef inputs, int64_t ellipsisAxes) {
  std::string result;
  for (int64_t i = ellipsisAxes; i-- > 0;)
    result += static_cast<char>('0' + i);
  for (int c = 'A'; c <= 'z'; ++c)
    if (inputs.count(static_cast<char>(c)) == 1)
      result += static_cast<char>(c);
  return result;
}

Equation equationOf(NodeTranslation &t) {
  std::string text = t.text("equation", "");
  llvm::erase(text, ' ');
  auto [inputs, result] = llvm::StringRef(text).split("->");
  llvm::SmallVector<llvm::StringRef, 4> parts;
  inputs.split(parts, ',');
  if (parts.size() != t.inputCount())
    t.reject("equation '" + text + "' has " + llvm::Twine(parts.size()) + " operands");
  Equation equation;
  int64_t widest = 0;
  for (unsigned i = 0; i < parts.size(); ++i) {
    int64_t axes = ellipsisAxesOf(parts[i], t.input(i));
    if (axes < 0 || axes > 10)
      t.reject("equation '" + text + "' does not fit " + toString(t.input(i)->type()));
    widest = std::max(widest, axes);
    Term term{lettersOf(parts[i], axes), t.input(i)};
    if (static_cast<int64_t>(term.letters.size()) != t.input(i)->type().rank())
      t.reject("equation '" + text + "' does not fit " + toString(t.input(i)->type()));
    equation.terms.push_back(diagonal(t, std::move(term)));
  }
  dropBroadcastAxes(t, equation.terms);
  bool isExplicit = llvm::StringRef(text).contains("->");
  equation.result = isExplicit ? lettersOf(result, widest) : impliedResult(inputs, widest);
  if (firstRepeated(equation.result) != llvm::StringRef::npos)
    t.reject("'" + result + "' names an axis twice");
  return equation;
}

bool has(llvm::StringRef letters, char letter) { return letters.contains(letter); }

Shape dimsOf(const Term &term, llvm::StringRef letters) {
  Shape dims;
  for (char letter : letters)
    dims.push_back(term.value->type().dim(static_cast<int64_t>(term.letters.find(letter))));
  return dims;
}

int64_t sizeOf(const Term &term, llvm::StringRef letters) {
  int64_t size = 1;
  for (int64_t dim : dimsOf(term, letters))
    size *= dim;
  return size;
}

/// Sums over every axis that is not in `needed`.
Term summed(NodeTranslation &t, const Term &term, llvm::StringRef needed) {
  Shape axes;
  std::string kept;
  for (size_t i = 0; i < term.letters.size(); ++i)
    if (has(needed, term.letters[i]))
      kept += term.letters[i];
    else
      axes.push_back(static_cast<int64_t>(i));
  return axes.empty() ? term : Term{kept, t.reduce(Op::reduceSum, term.value, axes, false)};
}

Value *ordered(NodeTranslation &t, const Term &term, llvm::StringRef letters) {
  Shape permutation;
  for (char letter : letters)
    permutation.push_back(static_cast<int64_t>(term.letters.find(letter)));
  return permutation == allAxes(static_cast<int64_t>(permutation.size())) ? term.value
                                                                          : t.transpose(term.value, permutation);
}

/// Letters in both operands, in both and summed over, and in one only.
struct Split {
  std::string batch, contracted, left, right;
};

Split split(NodeTranslation &t, const Term &a, const Term &b, llvm::StringRef needed) {
  Split s;
  for (char letter : a.letters) {
    bool isShared = has(b.letters, letter);
    llvm::StringRef axis(&letter, 1);
    if (isShared && dimsOf(a, axis) != dimsOf(b, axis))
      t.reject(llvm::Twine("axis '") + axis + "' differs between " + toString(a.value->type()) + " and " +
               toString(b.value->type()));
    (!isShared ? s.left : has(needed, letter) ? s.batch : s.contracted) += letter;
  }
  for (char letter : b.letters)
    if (!has(a.letters, letter))
      s.right += letter;
  return s;
}

/// The outer product, if no axis is summed over. Needs no matmul.
Value *outerProduct(NodeTranslation &t, const Term &a, const Term &b, const Split &s) {
  Shape left = dimsOf(a, s.batch + s.left), right = dimsOf(b, s.batch), tail = dimsOf(b, s.right);
  left.append(s.right.size(), 1);
  right.append(s.left.size(), 1);
  right.append(tail.begin(), tail.end());
  return t.binary(Op::mul, t.reshape(ordered(t, a, s.batch + s.left), left),
                  t.reshape(ordered(t, b, s.batch + s.right), right));
}

/// b as a matrix, in an order that needs at most a transpose of the last two axes for the usual layouts of attention
/// and weights.
Value *columns(NodeTranslation &t, const Term &b, const Split &s) {
  Shape batch = dimsOf(b, s.batch);
  int64_t k = sizeOf(b, s.contracted), n = sizeOf(b, s.right);
  bool isTransposed = b.letters == s.batch + s.right + s.contracted;
  Shape shape = batch;
  shape.append({isTransposed ? n : k, isTransposed ? k : n});
  if (!isTransposed)
    return t.reshape(ordered(t, b, s.batch + s.contracted + s.right), shape);
  Shape swapped = allAxes(static_cast<int64_t>(shape.size()));
  std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
  return t.transpose(t.reshape(b.value, shape), swapped);
}

Term product(NodeTranslation &t, const Term &a, const Term &b, llvm::StringRef needed) {
  Split s = split(t, a, b, needed);
  std::string letters = s.batch + s.left + s.right;
  if (s.contracted.empty())
    return {letters, outerProduct(t, a, b, s)};
  Shape result = dimsOf(a, s.batch + s.left), tail = dimsOf(b, s.right);
  // A matrix multiplies every batch of the other operand, so its rows keep their axes.
  bool keepsRows = s.batch.empty() && !s.left.empty();
  Shape rows = keepsRows ? dimsOf(a, s.left) : dimsOf(a, s.batch);
  if (!keepsRows)
    rows.push_back(sizeOf(a, s.left));
  rows.push_back(sizeOf(a, s.contracted));
  Value *left = t.reshape(ordered(t, a, s.batch + s.left + s.contracted), rows);
  Value *y = matmulOf(t, left, columns(t, b, s));
  result.append(tail.begin(), tail.end());
  return {letters, t.reshape(y, result)};
}

void einsum(NodeTranslation &t) {
  Equation equation = equationOf(t);
  Term term = equation.terms[0];
  for (size_t i = 1; i <= equation.terms.size(); ++i) {
    std::string later = equation.result;
    for (size_t k = i + 1; k < equation.terms.size(); ++k)
      later += equation.terms[k].letters;
    if (i == equation.terms.size()) {
      term = summed(t, term, later);
      break;
    }
    const Term &next = equation.terms[i];
    term = summed(t, term, later + next.letters);
    term = product(t, term, summed(t, next, later + term.letters), later);
  }
  for (char letter : equation.result)
    if (!has(term.letters, letter))
      t.reject(llvm::Twine("the result's axis '") + llvm::StringRef(&letter, 1) + "' is in no operand");
  t.setOutput(0, ordered(t, term, equation.result));
}

constexpr TranslationRow rows[] = {{"Einsum", einsum}};

} // namespace

TranslationRows einsumTranslations() { return rows; }

} // namespace fsdpc
