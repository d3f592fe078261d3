// The analysis of the batch axis, and dropout that follows it: on random graphs, and for the layouts that exporters
// write.
#include "ir/builder.h"
#include "ir/eval/evaluate.h"
#include "ir/ops/attributes.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/analysis/batch_axis.h"
#include "passes/passes.h"
#include "tests/unit/plain_target.h"

#include <gtest/gtest.h>
#include <random>

namespace fsdpc {
namespace {

using Tensors = std::map<std::string, HostTensor>;

HostTensor randomTensor(const Type &type, std::mt19937 &generator) {
  HostTensor tensor(type);
  std::normal_distribution<double> normal;
  for (double &value : tensor.values)
    value = isFloat(type.dtype()) ? normal(generator) : generator() % 2;
  return tensor;
}

int64_t sampleOf(int64_t element, const Type &type, const BatchPosition &position) {
  int64_t stride = 1;
  for (int64_t axis = position.axis + 1; axis < type.rank(); ++axis)
    stride *= type.dim(axis);
  return element / stride % type.dim(position.axis) / position.inner % position.samples;
}

class Graph {
public:
  Graph() : forward(*module.addFunction(FunctionKind::forward)), b(forward) {}

  Value *input(const std::string &name, Shape shape, DType dtype = DType::f32) {
    return forward.addArgument(ArgumentKind::input, name, Type(dtype, shape));
  }
  Value *parameter(Shape shape) {
    Parameter parameter;
    parameter.name = parameter.initializer = "p" + std::to_string(module.parameters.size());
    parameter.type = Type(DType::f32, shape);
    module.parameters.push_back(parameter);
    State state;
    state.name = parameter.name;
    state.type = parameter.type;
    return b.readState(module.addState(std::move(state)));
  }
  Value *scalar(const std::string &name) {
    if (!module.state(name)) {
      State state;
      state.name = name;
      state.role = StateRole::scalar;
      state.type = Type(DType::i64, {});
      module.addState(std::move(state));
    }
    return b.readState(*module.state(name));
  }
  /// As the importer writes it.
  Value *dropout(Value *x, int64_t instance) {
    RandomUniformAttributes random{instance, 0, Shape(x->type().shape())};
    Value *u = b.create(Op::randomUniform, {scalar("seed"), scalar("step")}, random)->result();
    Value *drop = b.binary(Op::less, u, b.constantLike(u, 0.5));
    return b.select(drop, b.constantLike(x, 0), b.mul(x, b.constantLike(x, 2)));
  }
  std::optional<BatchPosition> positionOf(const Value *value) { return BatchAxis(forward).of(value); }

  Module module;
  Function &forward;
  Builder b;
};

// ---- Random graphs

/// Grows a graph by random nodes. Values that are shared by the entire batch are not used further.
class RandomGraph : public Graph {
public:
  explicit RandomGraph(unsigned seed) : generator(seed) {
    int64_t batch = 1 + below(3);
    pool.push_back(input("x", {batch, 2, 3, 4}));
    pool.push_back(input("z", {batch, 6}));
    for (int i = 0; i < 14; ++i)
      grow();
  }

  int64_t below(int64_t bound) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(bound)); }
  std::mt19937 generator;
  std::vector<Value *> pool; ///< floats

private:
  void grow() {
    Value *x = pool[below(static_cast<int64_t>(pool.size()))];
    std::optional<Node *> node = tryRandom(x);
    if (!node)
      return;
    BatchAxis batch(forward);
    for (unsigned i = 0; i < (*node)->resultCount(); ++i) {
      Value *result = (*node)->result(i);
      if ((batch.of(result) || batch.isLost(result)) && isFloat(result->type().dtype()) &&
          result->type().elements() < 600)
        pool.push_back(result);
    }
  }

  /// Returns nothing if the shape rule rejects the operands.
  template <class A>
  std::optional<Node *> make(Op op, llvm::ArrayRef<Value *> operands, A attributes) {
    return made(b.tryCreate(op, operands, std::make_unique<Attributes<A>>(std::move(attributes))));
  }
  static std::optional<Node *> made(llvm::Expected<Node *> node) {
    if (node)
      return *node;
    llvm::consumeError(node.takeError());
    return std::nullopt;
  }

  Shape shuffledAxes(int64_t rank) {
    Shape axes;
    for (int64_t i = 0; i < rank; ++i)
      axes.push_back(i);
    std::shuffle(axes.begin(), axes.end(), generator);
    return axes;
  }
  Shape randomShapeOf(int64_t elements) {
    Shape shape;
    while (elements > 1 && shape.size() < 4) {
      int64_t dim = 1 + below(elements);
      while (elements % dim != 0)
        ++dim;
      shape.push_back(dim);
      elements /= dim;
    }
    shape.push_back(elements);
    return shape;
  }
  Value *partnerOf(Value *x) {
    for (int i = 0; i < 8; ++i)
      if (Value *other = pool[below(static_cast<int64_t>(pool.size()))]; other->type() == x->type())
        return other;
    return parameter(Shape(x->type().shape()));
  }
  Value *indices(Shape shape) { return b.constant(Type(DType::i64, shape), 0); }

  std::optional<Node *> tryRandom(Value *x) {
    const Type &type = x->type();
    int64_t rank = type.rank(), axis = rank > 0 ? below(rank) : 0;
    bool coin = below(2), other = below(2);
    switch (below(22)) {
    case 0: return made(b.tryCreate(Op::tanh, {x}));
    case 1: return made(b.tryCreate(Op::add, {x, partnerOf(x)}));
    case 2: return made(b.tryCreate(Op::select, {b.binary(Op::less, x, partnerOf(x)), partnerOf(x), x}));
    case 3:
    case 4:
    case 5: return make(Op::reshape, {x}, ShapeAttributes{randomShapeOf(type.elements())});
    case 6:
    case 7: return make(Op::transpose, {x}, TransposeAttributes{shuffledAxes(rank)});
    case 8: {
      Shape shape(type.shape());
      shape.insert(shape.begin(), 1 + below(3));
      return make(Op::broadcast, {x}, ShapeAttributes{shape});
    }
    case 9: {
      if (rank == 0)
        return std::nullopt;
      SliceAttributes slice{Shape(rank, 0), Shape(type.shape()), Shape(rank, 1)};
      slice.starts[axis] = below(type.dim(axis));
      slice.steps[axis] = 1 + below(3);
      slice.sizes[axis] = 1 + (type.dim(axis) - 1 - slice.starts[axis]) / slice.steps[axis];
      slice.sizes[axis] -= below(slice.sizes[axis]);
      return make(Op::slice, {x}, slice);
    }
    case 10: {
      if (rank == 0)
        return std::nullopt;
      PadAttributes pad{Shape(rank, 0), Shape(rank, 0), Shape(rank, 0)};
      pad.before[axis] = below(4);
      pad.after[axis] = below(4);
      pad.interior[axis] = coin && other;
      return make(Op::pad, {x}, pad);
    }
    case 11: return make(Op::concat, {x, partnerOf(x), x}, AxisAttributes{axis});
    case 12: return make(Op::gather, {x, indices(coin ? Shape{2} : Shape{2, 1})}, AxisAttributes{axis});
    case 13:
      return make(Op::scatterAdd, {indices({type.rank() > 0 ? type.dim(axis) : 1}), x}, ScatterAddAttributes{axis, 3});
    case 14: return make(Op::reduceSum, {x}, ReduceAttributes{{axis}, coin});
    case 15: return make(Op::softmax, {x}, AxisAttributes{axis});
    case 16: {
      if (rank < 2)
        return std::nullopt;
      Value *weight = parameter({other ? 2 : type.dim(coin ? -1 : -2), other ? type.dim(coin ? -1 : -2) : 2});
      if (below(2))
        return make(Op::matmul, {weight, x}, MatmulAttributes{!other, coin});
      return make(Op::matmul, {x, weight}, MatmulAttributes{!coin, other});
    }
    case 17: return make(Op::matmul, {x, partnerOf(x)}, MatmulAttributes{coin, !coin});
    case 18: {
      if (rank == 4 && coin) {
        AttentionAttributes attention{1, false, other};
        return make(Op::attention, {x, partnerOf(x), partnerOf(x)}, attention);
      }
      if (rank == 0)
        return std::nullopt;
      Shape normalised(type.shape().drop_front(axis));
      return make(Op::layerNorm, {x, parameter(normalised), parameter(normalised)}, NormAttributes{axis});
    }
    case 19: {
      if (rank == 0)
        return std::nullopt;
      Shape tuples(type.shape().take_front(axis));
      tuples.append({2, 1});
      Value *places = indices(tuples);
      Value *updates = b.create(Op::gatherNd, {partnerOf(x), places}, GatherNdAttributes{axis})->result();
      Value *into = coin ? x : parameter(Shape(type.shape()));
      return make(Op::scatterNd, {into, places, updates}, ScatterNdAttributes{axis, other ? "add" : "none"});
    }
    case 20: return make(Op::topK, {x}, TopKAttributes{1, coin});
    default: {
      if (rank == 4 && coin) {
        PoolAttributes pool{{1, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, false, {}};
        return make(Op::maxPool, {x}, pool);
      }
      if (rank == 4)
        return make(Op::convolution, {x, parameter({2, type.dim(1), 1, 2})},
                    ConvolutionAttributes{{1, 1}, {1, 1}, {0, 0}, {0, 0}, 1, {}});
      return make(Op::cumulativeSum, {x}, CumulativeSumAttributes{axis});
    }
    }
  }
};

TEST(BatchAxis, AnElementDependsOnNoOtherSample) {
  int found = 0, merged = 0, behindOthers = 0, lost = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    RandomGraph graph(seed);
    BatchAxis batch(graph.forward);
    std::vector<std::string> names;
    for (size_t i = 0; i < graph.pool.size(); ++i)
      names.push_back("r" + std::to_string(i));
    graph.b.ret(graph.pool, names);
    Tensors parameters, inputs;
    for (const Parameter &parameter : graph.module.parameters)
      parameters[parameter.name] = randomTensor(parameter.type, graph.generator);
    for (const Argument &argument : graph.forward.arguments())
      inputs[argument.name] = randomTensor(argument.value->type(), graph.generator);
    int64_t samples = inputs["x"].type.dim(0), perturbed = graph.below(samples);
    Tensors others = inputs;
    for (auto &[name, tensor] : others)
      for (size_t i = 0; i < tensor.values.size(); ++i)
        if (sampleOf(static_cast<int64_t>(i), tensor.type, {0, samples, 1}) == perturbed)
          tensor.values[i] += 0.5;
    auto run = [&](const Tensors &values) {
      EvaluationState state = makeEvaluationState(graph.module, parameters);
      auto results = evaluate(graph.module, {FunctionKind::forward}, {values}, state);
      EXPECT_TRUE(static_cast<bool>(results)) << llvm::toString(results.takeError());
      return std::move((*results)[0]);
    };
    Tensors before = run(inputs), after = run(others);
    for (size_t v = 0; v < graph.pool.size(); ++v) {
      std::optional<BatchPosition> position = batch.of(graph.pool[v]);
      const HostTensor &a = before[names[v]], &c = after[names[v]];
      lost += !position;
      if (!position)
        continue;
      ++found;
      merged += position->inner > 1 && samples > 1;
      behindOthers += samples > 1 && a.type.dim(position->axis) > samples * position->inner;
      ASSERT_EQ(a.type.dim(position->axis) % (samples * position->inner), 0);
      for (size_t i = 0; i < a.values.size(); ++i)
        if (sampleOf(static_cast<int64_t>(i), a.type, *position) != perturbed) {
          ASSERT_EQ(a.values[i], c.values[i]) << "seed " << seed << " value " << v << " element " << i << "\n"
                                              << toText(graph.module);
        }
    }
  }
  // Not vacuously so.
  EXPECT_GT(found, 2000);
  EXPECT_GT(merged, 100);
  EXPECT_GT(behindOthers, 30);
  EXPECT_GT(found, 2 * lost);
}

// ---- The layouts that exporters write

TEST(BatchAxis, FollowsReshapes) {
  Graph graph;
  Value *x = graph.input("x", {2, 6, 8});
  auto reshaped = [&](Value *value, Shape shape) { return graph.positionOf(graph.b.reshape(value, shape)); };
  EXPECT_EQ(reshaped(x, {12, 8}), (BatchPosition{0, 2, 6}));
  EXPECT_EQ(reshaped(x, {96}), (BatchPosition{0, 2, 48}));
  EXPECT_EQ(reshaped(x, {2, 6, 2, 4}), (BatchPosition{0, 2, 1}));
  EXPECT_EQ(reshaped(x, {1, 2, 48}), (BatchPosition{1, 2, 1}));
  EXPECT_EQ(reshaped(x, {4, 3, 8}), (BatchPosition{0, 2, 2}));
  Value *sequenceFirst = graph.b.transpose(x, {1, 0, 2});
  EXPECT_EQ(reshaped(sequenceFirst, {12, 8}), (BatchPosition{0, 2, 1}));
  EXPECT_EQ(reshaped(sequenceFirst, {6, 4, 4}), (BatchPosition{1, 2, 2})); // nn.MultiheadAttention: batch x heads
  EXPECT_EQ(reshaped(sequenceFirst, {3, 32}), (BatchPosition{1, 2, 8}));
  EXPECT_EQ(reshaped(sequenceFirst, {4, 24}), std::nullopt);
}

TEST(BatchAxis, AHeadOfKeysIsAGroupOfHeadsOfQueries) {
  Graph graph;
  Value *q = graph.input("q", {2, 12, 5}), *k = graph.input("k", {2, 6, 5});
  auto asHeads = [&](Value *x, int64_t count) { return graph.b.reshape(x, {1, 2 * count, 12 / 4, 5}); };
  Value *queries = asHeads(q, 4), *keys = asHeads(k, 2);
  EXPECT_EQ(graph.positionOf(keys), (BatchPosition{1, 2, 2}));
  Node *attention = graph.b.create(Op::attention, {queries, keys, keys}, AttentionAttributes{});
  EXPECT_EQ(graph.positionOf(attention->result(0)), (BatchPosition{1, 2, 4}));
  EXPECT_EQ(graph.positionOf(attention->result(1)), (BatchPosition{1, 2, 4}));
}

TEST(BatchAxis, DocumentsHaveItWhereQueriesHaveIt) {
  Graph graph;
  Value *q = graph.input("q", {4, 3, 6, 5}), *k = graph.input("k", {4, 1, 6, 5});
  Value *documents = graph.b.create(Op::cast, {graph.input("documents", {4, 6})}, CastAttributes{DType::i64})->result();
  auto attend = [&](Value *queries, Value *keys) {
    return graph.b.create(Op::attention, {queries, keys, keys, documents}, AttentionAttributes{.documents = true})
        ->result(0);
  };
  EXPECT_EQ(graph.positionOf(attend(q, k)), (BatchPosition{0, 4, 1}));
  Value *same = graph.parameter({4, 3, 6, 5});
  EXPECT_EQ(graph.positionOf(attend(same, same)), (BatchPosition{0, 4, 1}));
  Value *headsOfSamples = graph.b.transpose(graph.input("t", {4, 4, 6, 5}), {1, 0, 2, 3});
  Value *mixed = attend(headsOfSamples, headsOfSamples);
  EXPECT_TRUE(BatchAxis(graph.forward).isLost(mixed));
}

TEST(BatchAxis, RotaryKeepsItAndTakesAnglesOfASample) {
  Graph graph;
  Value *x = graph.input("x", {2, 3, 4}), *angles = graph.input("angles", {2, 1, 4}), *table = graph.parameter({3, 4});
  auto rotary = [&](Value *of, Value *by) {
    return graph.b.create(Op::rotary, {of, by, by}, RotaryAttributes{})->result();
  };
  EXPECT_EQ(graph.positionOf(rotary(x, table)), (BatchPosition{0, 2, 1}));
  EXPECT_EQ(graph.positionOf(rotary(x, angles)), (BatchPosition{0, 2, 1}));
  EXPECT_EQ(graph.positionOf(rotary(graph.parameter({2, 3, 4}), angles)), (BatchPosition{0, 2, 1}));
  Value *mixed = rotary(graph.b.transpose(x, {1, 2, 0}), graph.parameter({2}));
  EXPECT_TRUE(BatchAxis(graph.forward).isLost(mixed));
}

TEST(BatchAxis, LosesTheBatchWhereSamplesMix) {
  Graph graph;
  Value *x = graph.input("x", {3, 4});
  auto lost = [&](Value *value) { return BatchAxis(graph.forward).isLost(value); };
  EXPECT_TRUE(lost(graph.b.matmul(x, x, false, true)));
  EXPECT_TRUE(lost(graph.b.create(Op::softmax, {x}, AxisAttributes{0})->result()));
  EXPECT_TRUE(lost(graph.b.create(Op::slice, {x}, SliceAttributes{{1, 0}, {2, 4}, {1, 1}})->result()));
  EXPECT_TRUE(lost(graph.b.create(Op::concat, {x, graph.parameter({1, 4})}, AxisAttributes{0})->result()));
  Value *square = graph.input("square", {3, 3});
  EXPECT_TRUE(lost(graph.b.add(square, graph.b.transpose(square, {1, 0}))));
}

TEST(BatchAxis, WhatTheWholeBatchSharesBelongsToNoSample) {
  Graph graph;
  Value *x = graph.input("x", {3, 4});
  Value *mean = graph.b.reduceSum(x, {0}, true);
  EXPECT_EQ(graph.positionOf(mean), std::nullopt);
  EXPECT_FALSE(BatchAxis(graph.forward).isLost(mean));
  EXPECT_EQ(graph.positionOf(graph.b.sub(x, graph.b.broadcast(mean, {3, 4}))), (BatchPosition{0, 3, 1}));
  EXPECT_EQ(graph.positionOf(graph.parameter({3, 4})), std::nullopt);
}

TEST(BatchAxis, SeesThroughIndices) {
  Graph graph;
  Value *tokens = graph.input("tokens", {2, 5}, DType::i64), *table = graph.parameter({7, 4});
  Value *embedded = graph.b.create(Op::gather, {table, tokens}, AxisAttributes{0})->result();
  EXPECT_EQ(graph.positionOf(embedded), (BatchPosition{0, 2, 1}));
  Value *lastToken =
      graph.b.create(Op::gather, {embedded, graph.b.constant(Type(DType::i64, {}), 4)}, AxisAttributes{1})->result();
  EXPECT_EQ(graph.positionOf(lastToken), (BatchPosition{0, 2, 1}));
  Value *columns = graph.b.create(Op::gather, {graph.b.transpose(table, {1, 0}), tokens}, AxisAttributes{1})->result();
  EXPECT_EQ(graph.positionOf(columns), (BatchPosition{1, 2, 1}));
  Value *mixed = graph.b.create(Op::gather, {embedded, tokens}, AxisAttributes{0})->result();
  EXPECT_TRUE(BatchAxis(graph.forward).isLost(mixed));
}

// ---- Dropout

/// A net with the batch axis first, after the sequence axis, and merged with it in both orders.
std::unique_ptr<Graph> dropoutNet(int64_t batch) {
  auto graph = std::make_unique<Graph>();
  Builder &b = graph->b;
  Value *x = graph->input("x", {batch, 3, 4});
  Value *h = graph->dropout(x, 0);
  h = graph->dropout(b.transpose(h, {1, 0, 2}), 1);              // [T, B, C]
  h = graph->dropout(b.reshape(h, {3 * batch, 4}), 2);           // [T*B, C]
  h = graph->dropout(b.reshape(h, {3, batch * 2, 2}), 3);        // [T, B*H, D]
  h = graph->dropout(b.transpose(h, {1, 0, 2}), 4);              // [B*H, T, D]
  h = b.transpose(b.reshape(h, {batch, 2, 3, 2}), {0, 2, 1, 3}); // [B, T, H, D]
  h = graph->dropout(b.reshape(h, {batch * 12}), 5);
  b.ret({b.reshape(h, {batch, 12})}, {"y"});
  return graph;
}

std::vector<std::string> keyed(Graph &graph) {
  std::vector<std::string> remarks;
  PlainTarget target;
  EXPECT_FALSE(static_cast<bool>(keyRandomness.run(graph.module, PassContext{PipelineOptions(), target, remarks})));
  llvm::Error error = verify(graph.module);
  EXPECT_FALSE(static_cast<bool>(error)) << llvm::toString(std::move(error));
  return remarks;
}

/// The concatenated outputs of all ranks for a batch of ones.
std::vector<double> outputs(Graph &graph, int64_t ranks, double step) {
  std::vector<Tensors> inputs(ranks);
  for (Tensors &own : inputs)
    own["x"] = HostTensor(graph.forward.argument("x")->type(), 1);
  EvaluationState state = makeEvaluationState(graph.module, {}, {{"seed", 3}, {"step", step}});
  state.states.resize(ranks, state.states[0]);
  auto results = evaluate(graph.module, {FunctionKind::forward}, inputs, state);
  EXPECT_TRUE(static_cast<bool>(results)) << llvm::toString(results.takeError());
  std::vector<double> all;
  for (Tensors &own : *results)
    llvm::append_range(all, own["y"].values);
  return all;
}

TEST(KeyRandomness, MasksFollowSamplesOverAnyNumberOfRanks) {
  constexpr int64_t samples = 64;
  std::vector<double> alone;
  for (int64_t ranks : {1, 2, 4, 64}) {
    std::unique_ptr<Graph> graph = dropoutNet(samples / ranks);
    graph->module.mesh = {{"shard", ranks}};
    EXPECT_EQ(keyed(*graph), std::vector<std::string>());
    std::vector<double> all = outputs(*graph, ranks, 1);
    if (alone.empty())
      alone = all;
    EXPECT_EQ(all, alone) << ranks << " ranks";
    EXPECT_NE(outputs(*graph, ranks, 2), alone);
  }
  // Six independent masks keep one element in 64.
  int64_t kept = llvm::count_if(alone, [](double y) { return y != 0; });
  double expected = samples * 12 / 64.0;
  EXPECT_NEAR(static_cast<double>(kept), expected, 4 * std::sqrt(expected));
}

TEST(KeyRandomness, AMaskForEverySampleFollowsIt) {
  constexpr int64_t samples = 32;
  std::vector<double> alone;
  for (int64_t ranks : {1, 2, 32}) {
    Graph graph;
    graph.module.mesh = {{"shard", ranks}};
    const int64_t batch = samples / ranks;
    Value *x = graph.input("x", {batch, 3, 4});
    Value *u = graph.b
                   .create(Op::randomUniform, {graph.scalar("seed"), graph.scalar("step")},
                           RandomUniformAttributes{0, 0, {batch, 1, 1}})
                   ->result();
    Value *keep = graph.b.unary(Op::logicalNot, graph.b.binary(Op::less, u, graph.b.constantLike(u, 0.5)));
    Value *y = graph.b.select(graph.b.broadcast(keep, {batch, 3, 4}), x, graph.b.constantLike(x, 0));
    graph.b.ret({graph.b.reshape(y, {batch, 12})}, {"y"});
    EXPECT_EQ(keyed(graph), std::vector<std::string>());
    std::vector<double> all = outputs(graph, ranks, 1);
    alone = alone.empty() ? all : alone;
    EXPECT_EQ(all, alone) << ranks << " ranks";
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(all[i], all[i / 12 * 12]) << "element " << i;
  }
  EXPECT_GT(llvm::count(alone, 0.0), 0);
  EXPECT_GT(llvm::count(alone, 1.0), 0);
}

TEST(KeyRandomness, SaysWhereMasksDependOnTheRanks) {
  Graph graph;
  Value *x = graph.input("x", {3, 4});
  graph.b.setSource("/mix/Dropout");
  Value *mixed = graph.dropout(graph.b.matmul(x, x, false, true), 0);
  graph.b.ret({mixed}, {"y"});
  EXPECT_EQ(keyed(graph),
            std::vector<std::string>{"/mix/Dropout: no axis of f32[3,3] is the batch, so its random numbers "
                                     "depend on the number of ranks"});
  for (Node *node : graph.forward)
    if (node->op() == Op::randomUniform) {
      EXPECT_EQ(node->get<RandomUniformAttributes>().batchAxis, -1);
    }
}

} // namespace
} // namespace fsdpc
