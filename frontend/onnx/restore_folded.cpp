// A parameter that the exporter expanded, sliced or looked up, and stored as the result, becomes an initializer again.
#include "frontend/onnx/classify.h"
#include "frontend/onnx/computed_back.h"
#include "frontend/onnx/repeated_values.h"
#include "frontend/onnx/zero_state.h"

#include <algorithm>
#include <optional>

namespace fsdpc {

namespace {

class FoldedParameters {
public:
  FoldedParameters(const Repair &repair, const GraphIndex &index)
      : repair(repair), index(index), signature(exportSignature(index.graph)), batch(batchSize()) {}

  llvm::Error run() {
    for (int i = 0, many = index.graph.initializer_size(); i < many; ++i) {
      const onnx::TensorProto &tensor = index.graph.initializer(i);
      auto folded = signature.foldedFrom.find(tensor.name());
      std::optional<DType> dtype = dtypeOf(tensor.data_type());
      bool isParameter = signature.isParameter.contains(tensor.name());
      bool isRead = !index.consumers(tensor.name()).empty();
      if (folded == signature.foldedFrom.end() || isParameter || !dtype || !isFloat(*dtype) || !isRead)
        continue;
      if (llvm::Error error = restore(tensor, folded->second))
        return error;
    }
    // A parameter that one initializer does not yield may have been recovered from another.
    for (const Computed &one : computed)
      if (llvm::Error error = restoreComputed(one))
        return error;
    edit.apply();
    return llvm::Error::success();
  }

private:
  /// Dim 0 of the first input; 0 if it is symbolic. Then nothing was expanded along it either.
  int64_t batchSize() const {
    for (const onnx::ValueInfoProto &input : index.graph.input()) {
      const auto &dims = input.type().tensor_type().shape();
      if (index.initializerPosition(input.name()) < 0 && dims.dim_size() > 0)
        return dims.dim(0).dim_value();
    }
    return 0;
  }

  void lose(llvm::StringRef name, const llvm::Twine &why) { repair.model.lost.push_back({name.str(), why.str()}); }

  llvm::Error restore(const onnx::TensorProto &tensor, llvm::ArrayRef<std::string> sources) {
    std::vector<std::string> parameters;
    for (const std::string &source : sources)
      if (signature.isParameter.contains(source))
        parameters.push_back(source);
    if (parameters.empty() || isOfRecurrentLayer(tensor))
      return llvm::Error::success();
    Folding folding = foldingOf(signature, tensor.name(), sources);
    edit.insertBefore(index.consumers(tensor.name()).front().node);
    if (parameters.size() > 1) {
      llvm::Expected<bool> isOfZero = zeroState.restoreLinear(tensor, folding, parameters);
      if (!isOfZero || *isOfZero)
        return isOfZero ? llvm::Error::success() : isOfZero.takeError();
      for (const std::string &name : parameters)
        lose(name, "was computed, with others, into '" + tensor.name() + "'" + folding.operations());
      return llvm::Error::success();
    }
    folding.parameter = parameters.front();
    // A literal in the source is also detached, after lift_fresh_copy.
    if (llvm::is_contained(folding.moving, "detach") && !llvm::is_contained(folding.moving, "lift_fresh_copy")) {
      lose(folding.parameter, "was detached into '" + tensor.name() + "', where it does not train");
      return llvm::Error::success();
    }
    // With reads by index, the computation may be on the indices. Otherwise the values differ from the parameter's.
    bool isComputed = folding.computes && !folding.readsRows;
    if (!isComputed && folding.last != Moves::computed)
      return cutDown(tensor, folding);
    llvm::Expected<RestoredOrWhy> result = computedBack.restore(tensor, folding);
    if (!result)
      return result.takeError();
    if (!result->isDone)
      computed.push_back({&tensor, std::move(folding)});
    return llvm::Error::success();
  }

  /// An initializer that was computed from one parameter.
  struct Computed {
    const onnx::TensorProto *tensor;
    Folding folding;
  };

  llvm::Error restoreComputed(const Computed &one) {
    edit.insertBefore(index.consumers(one.tensor->name()).front().node);
    llvm::Expected<bool> isZero = zeroState.restoreProduct(*one.tensor, one.folding);
    if (!isZero || *isZero)
      return isZero ? llvm::Error::success() : isZero.takeError();
    llvm::Expected<RestoredOrWhy> result = computedBack.restore(*one.tensor, one.folding);
    if (!result)
      return result.takeError();
    if (!result->isDone)
      lose(one.folding.parameter, "was computed into '" + one.tensor->name() + "'" + one.folding.operations() +
                                      (result->why.empty() ? "" : ", and " + result->why));
    return llvm::Error::success();
  }

  /// A recurrent node's operands are blocks of parameters, which restoreRecurrent handles.
  bool isOfRecurrentLayer(const onnx::TensorProto &tensor) const {
    return llvm::any_of(index.readsOf(tensor.name()), [&](const InitializerRead &read) {
      llvm::StringRef op = index.node(read).op_type();
      return op == "LSTM" || op == "GRU" || op == "RNN";
    });
  }

  llvm::Error cutDown(const onnx::TensorProto &tensor, const Folding &folding) {
    if ((!folding.repeats && !folding.readsRows) || elementsOf(tensor) == 0) {
      if (llvm::any_of(folding.moving, takesPart))
        repair.remarks.push_back("'" + folding.parameter + "' was stored as '" + tensor.name() +
                                 "', after a slice: what that left out is not in the file");
      return llvm::Error::success(); // only reshapes and transposes remain, which the classifier handles
    }
    if (isAbsent(repair.model, tensor)) {
      lose(folding.parameter, "is stored as '" + tensor.name() + "', whose values are absent");
      return llvm::Error::success();
    }
    llvm::Expected<std::vector<uint8_t>> bytes = readTensor(repair.model, tensor);
    if (!bytes)
      return bytes.takeError();
    const int64_t elements = elementsOf(tensor);
    DenseValues values{shapeOf(tensor), static_cast<int64_t>(bytes->size()) / elements, std::move(*bytes)};
    if (folding.repeats)
      splitRepeated(values);
    const Shape stored = values.shape;
    collapse(values, folding);
    // A parameter expanded along another axis than the batch had fewer elements than the initializer.
    const bool isGrown = folding.repeats && !folding.readsRows && batch != 1 && values.shape == stored;
    // A uniform value in several rows is ambiguous: a parameter with any number of rows would look like that.
    int64_t largest = values.shape.empty() ? 1 : *std::max_element(values.shape.begin(), values.shape.end());
    if ((values.elements() != largest || (isGrown && elements > 1)) && values.isUniform()) {
      lose(folding.parameter, "was stored as '" + tensor.name() +
                                  "', whose values are all equal: nothing tells which " + "of them are one");
      return llvm::Error::success();
    }
    if (folding.readsRows)
      readRows(tensor, folding, values, stored);
    else
      replace(tensor, folding, values, stored, {});
    return llvm::Error::success();
  }

  /// Splits samples from the axis that they were merged with, [B * H, ...] of x.repeat(B, 1, 1).view(...), if the
  /// slices are equal and not uniform.
  void splitRepeated(DenseValues &values) const {
    const int64_t many = values.shape.empty() ? 0 : values.shape[0];
    if (batch < 2 || many <= batch || many % batch != 0)
      return;
    DenseValues split = values;
    split.shape[0] = many / batch;
    split.shape.insert(split.shape.begin(), batch);
    if (repeatsAlong(split, 0) && !split.isUniform())
      values = std::move(split);
  }

  /// Collapses axes along which all slices are equal. For uniform slices equality proves nothing, except along the
  /// samples of the batch, an axis that no parameter has.
  void collapse(DenseValues &values, const Folding &folding) const {
    for (size_t axis = 0; axis < values.shape.size(); ++axis) {
      bool isFeature = folding.last == Moves::rows && axis + 1 == values.shape.size();
      if (values.shape[axis] < 2 || isFeature || !repeatsAlong(values, static_cast<int64_t>(axis)))
        continue;
      DenseValues first = firstAlong(values, static_cast<int64_t>(axis));
      bool isBatch = axis == 0 && values.shape[0] == batch;
      if (isBatch || !first.isUniform())
        values = std::move(first);
    }
  }

  /// Rows [positions, D] of a table, with the axis of the tensor that is D.
  struct FoundRows {
    RowsOfTable table;
    int64_t axis;

    bool repeats() const { return table.rows.shape[0] < static_cast<int64_t>(table.indices.size()); }
  };

  /// Finds the axis that holds a row's elements: the one that leaves the fewest elements.
  static std::optional<FoundRows> findRows(const DenseValues &values, const Folding &folding) {
    const int64_t rank = static_cast<int64_t>(values.shape.size());
    std::optional<FoundRows> best;
    auto isSingle = [&](int64_t axis) { return values.shape[axis] < 2 && rank > 1 && folding.last != Moves::rows; };
    auto tryAxis = [&](int64_t axis, int64_t maxElements) {
      RowsOfTable found = distinctRows(moveAxisLast(values, axis));
      const int64_t elements = found.rows.elements();
      if (elements <= maxElements && (!best || elements < best->table.rows.elements()))
        best = {std::move(found), axis};
    };
    for (int64_t axis = folding.last == Moves::rows ? rank - 1 : 0; axis < rank; ++axis)
      if (!isSingle(axis))
        tryAxis(axis, values.elements());
    // Single elements may repeat by chance. In a table of one column at least half of them repeat.
    if (!best || !best->repeats())
      for (int64_t axis = 0; axis < rank; ++axis)
        if (isSingle(axis))
          tryAxis(axis, values.elements() / 2);
    return best;
  }

  void readRows(const onnx::TensorProto &tensor, const Folding &folding, const DenseValues &values,
                llvm::ArrayRef<int64_t> stored) {
    std::optional<FoundRows> found = findRows(values, folding);
    const bool repeats = found && found->repeats();
    // After moves and computations, only repeated rows prove that the last computation was on indices.
    if (!repeats && folding.computes && folding.last != Moves::rows)
      return lose(folding.parameter, "was computed into '" + tensor.name() + "'" + folding.operations());
    if (!repeats)
      return replace(tensor, folding, values, stored, {});
    orderByOffsets(found->table);
    Lookup lookup{std::move(found->table.indices), values.shape, found->axis};
    replace(tensor, folding, found->table.rows, stored, lookup);
  }

  /// Restores the tensor from the rows [positions, D] of a table.
  struct Lookup {
    std::vector<int64_t> indices;
    Shape shape;      ///< before the expansion
    int64_t axis = 0; ///< of D
  };

  /// Replaces the initializer by the parameter and the nodes that make the initializer's value from it: `values`
  /// expanded to `stored`, which has the initializer's elements in their order.
  void replace(const onnx::TensorProto &tensor, const Folding &folding, const DenseValues &values,
               llvm::ArrayRef<int64_t> stored, const std::optional<Lookup> &lookup) {
    if (known.parameter(folding.parameter))
      return lose(folding.parameter, "is read a second time, as '" + tensor.name() + "'");
    Shape own = values.shape, target(stored.begin(), stored.end());
    bool isTable = folding.readsRows && !lookup;
    if (values.shape == target && !lookup)
      return; // only extra dims of 1, if any: the classifier drops them
    while (isTable && own.size() > 2 && own.front() == 1)
      own.erase(own.begin());
    std::string value = known.make(folding.parameter, tensor.data_type(), own, values.data,
                                   noteOf(tensor, folding, lookup.has_value()));
    Shape shape = own;
    if (lookup) {
      value = lookUp(value, *lookup);
      shape = lookup->shape;
    } else if (own != values.shape) {
      value = edit.addReshape(value, values.shape);
      shape = values.shape;
    }
    if (shape != target)
      value = edit.addExpand(value, target);
    if (target != shapeOf(tensor))
      value = edit.addReshape(value, shapeOf(tensor));
    edit.replaceInitializer(tensor.name(), value, {});
    repair.remarks.push_back("'" + folding.parameter + "' " + noteOf(tensor, folding, lookup.has_value()));
  }

  std::string lookUp(llvm::StringRef table, const Lookup &lookup) {
    Shape positions = lookup.shape, order;
    const int64_t rank = static_cast<int64_t>(positions.size());
    positions.erase(positions.begin() + lookup.axis);
    std::string value = edit.addGather(table, lookup.indices, positions);
    // The row's elements are last. Dim i of the result is dim order[i] of that.
    for (int64_t i = 0; i < rank; ++i)
      order.push_back(i == lookup.axis ? rank - 1 : i < lookup.axis ? i : i - 1);
    return lookup.axis == rank - 1 ? value : edit.addTranspose(value, order);
  }

  static std::string noteOf(const onnx::TensorProto &tensor, const Folding &folding, bool isLookup) {
    std::string stored = "was stored as '" + tensor.name() + "' " + toString(Type(DType::f32, shapeOf(tensor)));
    if (isLookup)
      return stored + ": the rows that it reads train, each once; others are not in the file";
    return stored + (folding.readsRows ? ": the rows that it reads train; others are not in the file"
                                       : ": the parameter trains, read through a broadcast");
  }

  const Repair &repair;
  const GraphIndex &index;
  ExportSignature signature;
  const int64_t batch;
  GraphEdit edit{repair.model.graph()};
  FoldedValues known{repair, index, signature, edit};
  InvertedParameters computedBack{known};
  ZeroState zeroState{known};
  std::vector<Computed> computed; ///< not restored so far
};

} // namespace

llvm::Error restoreFolded(const Repair &repair) {
  GraphIndex index(repair.model.graph());
  return FoldedParameters(repair, index).run();
}

} // namespace fsdpc
