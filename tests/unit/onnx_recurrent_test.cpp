// LSTM, GRU and RNN compute the formulas of the ONNX operators page, which this file writes as plain loops, with the
// right derivatives by inputs, weights, biases and initial states.
#include "tests/frontend/onnx_text.h"
#include <numeric>

namespace fsdpc {

namespace {

constexpr int64_t T = 3, B = 2, I = 2, H = 2;

struct RecurrentCase {
  const char *name, *op, *attributes = "", *direction = "forward";
  bool hasBias = true, hasStates = false, hasPeepholes = false, hasLengths = false;
  bool isBatchFirst = false, resetsAfter = false, couples = false;
  double clip = 0;
  const char *f = "", *g = "", *h = ""; ///< activations, if not the defaults
  int output = 0;                       ///< which one is looked at
};

std::ostream &operator<<(std::ostream &out, const RecurrentCase &recurrent) { return out << recurrent.name; }

const RecurrentCase cases[] = {
    {"RnnPlain", "RNN"},
    {.name = "RnnRelu", .op = "RNN", .attributes = "activations = [\"Relu\"], ", .hasStates = true, .f = "Relu"},
    {.name = "RnnBoth",
     .op = "RNN",
     .attributes = "activations = [\"Tanh\", \"Tanh\"], ",
     .direction = "bidirectional",
     .hasStates = true,
     .hasLengths = true},
    {.name = "RnnLast", .op = "RNN", .direction = "reverse", .hasLengths = true, .output = 1},
    {.name = "RnnScaled",
     .op = "RNN",
     .attributes = "activations = [\"ScaledTanh\"], activation_alpha = [0.5], activation_beta = [2.0], ",
     .hasBias = false,
     .f = "ScaledTanh"},
    {.name = "GruBefore", .op = "GRU", .hasStates = true},
    {.name = "GruAfter",
     .op = "GRU",
     .attributes = "linear_before_reset = 1, ",
     .hasStates = true,
     .resetsAfter = true},
    {.name = "GruAfterBoth",
     .op = "GRU",
     .attributes = "linear_before_reset = 1, layout = 1, ",
     .direction = "bidirectional",
     .hasStates = true,
     .hasLengths = true,
     .isBatchFirst = true,
     .resetsAfter = true},
    {.name = "GruBeforeBothLast",
     .op = "GRU",
     .attributes = "layout = 1, ",
     .direction = "bidirectional",
     .hasBias = false,
     .hasLengths = true,
     .isBatchFirst = true,
     .output = 1},
    {.name = "LstmPlain", .op = "LSTM"},
    {.name = "LstmReverse", .op = "LSTM", .direction = "reverse", .hasStates = true, .hasLengths = true},
    {.name = "LstmBoth",
     .op = "LSTM",
     .attributes = "layout = 1, ",
     .direction = "bidirectional",
     .hasStates = true,
     .hasPeepholes = true,
     .hasLengths = true,
     .isBatchFirst = true},
    {.name = "LstmLastCell",
     .op = "LSTM",
     .direction = "bidirectional",
     .hasStates = true,
     .hasLengths = true,
     .output = 2},
    {.name = "LstmCoupled",
     .op = "LSTM",
     .attributes = "input_forget = 1, clip = 0.4, activations = [\"HardSigmoid\", \"Softsign\", \"Relu\"], ",
     .hasPeepholes = true,
     .couples = true,
     .clip = 0.4,
     .f = "HardSigmoid",
     .g = "Softsign",
     .h = "Relu"},
};

int64_t gatesOf(const RecurrentCase &c) { return c.op == std::string("LSTM") ? 4 : c.op == std::string("GRU") ? 3 : 1; }
int64_t directionsOf(const RecurrentCase &c) { return c.direction == std::string("bidirectional") ? 2 : 1; }
int64_t sizeOf(llvm::ArrayRef<int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

/// One input of the op that is cut out of x.
struct Part {
  std::string name;
  std::vector<int64_t> shape;
};

std::vector<Part> partsOf(const RecurrentCase &c) {
  int64_t D = directionsOf(c), G = gatesOf(c);
  bool isLstm = G == 4;
  std::vector<int64_t> state = c.isBatchFirst ? std::vector<int64_t>{B, D, H} : std::vector<int64_t>{D, B, H};
  std::vector<Part> parts = {{"X", c.isBatchFirst ? std::vector<int64_t>{B, T, I} : std::vector<int64_t>{T, B, I}},
                             {"W", {D, G * H, I}},
                             {"R", {D, G * H, H}}};
  if (c.hasBias)
    parts.push_back({"Bias", {D, 2 * G * H}});
  if (c.hasStates)
    parts.push_back({"H0", state});
  if (c.hasStates && isLstm)
    parts.push_back({"C0", state});
  if (c.hasPeepholes)
    parts.push_back({"P", {D, 3 * H}});
  return parts;
}

std::string textOf(const RecurrentCase &c) {
  std::string sizes, names, cut;
  int64_t total = 0;
  for (const Part &part : partsOf(c)) {
    std::string shape;
    for (int64_t dim : part.shape)
      shape += (shape.empty() ? "" : ", ") + std::to_string(dim);
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(sizeOf(part.shape));
    names += (names.empty() ? "f" : ", f") + part.name;
    cut += "s" + part.name + " = Constant<value_ints = [" + shape + "]>() " + part.name + " = Reshape(f" + part.name +
           ", s" + part.name + ") ";
    total += sizeOf(part.shape);
  }
  bool isLstm = gatesOf(c) == 4;
  std::string inputs = std::string("X, W, R, ") + (c.hasBias ? "Bias" : "") + ", " + (c.hasLengths ? "n" : "") + ", " +
                       (c.hasStates ? "H0" : "");
  if (isLstm)
    inputs += std::string(", ") + (c.hasStates ? "C0" : "") + ", " + (c.hasPeepholes ? "P" : "");
  while (inputs.ends_with(", "))
    inputs.resize(inputs.size() - 2);
  std::string outputs = c.output == 0 ? "y" : c.output == 1 ? "q, y" : "q, r, y";
  return "(float[1," + std::to_string(total) + "] x) => (float[M,N,O] y) { k = Constant<value_ints = [" + sizes +
         "]>() " + names + " = Split<axis = 1>(x, k) " + cut +
         (c.hasLengths ? "n = Constant<value = int32[2] {3, 2}>() " : "") + outputs + " = " + c.op + "<" +
         c.attributes + "direction = \"" + c.direction + "\", hidden_size = 2>(" + inputs + ") }";
}

// ---- the reference

double activation(const std::string &name, double x) {
  if (name == "Relu")
    return std::max(x, 0.0);
  if (name == "Tanh")
    return std::tanh(x);
  if (name == "ScaledTanh")
    return 0.5 * std::tanh(2 * x);
  if (name == "HardSigmoid")
    return std::clamp(0.2 * x + 0.5, 0.0, 1.0);
  if (name == "Softsign")
    return x / (1 + std::fabs(x));
  return 1 / (1 + std::exp(-x));
}

class Reference {
public:
  Reference(const RecurrentCase &c, const std::vector<double> &x) : c(c), G(gatesOf(c)), D(directionsOf(c)) {
    size_t at = 0;
    for (const Part &part : partsOf(c)) {
      size_t size = sizeOf(part.shape);
      parts[part.name].assign(x.begin() + at, x.begin() + at + size);
      at += size;
    }
    bool isLstm = G == 4;
    f = *c.f ? c.f : G == 1 ? "Tanh" : "Sigmoid";
    g = *c.g ? c.g : "Tanh";
    h = *c.h ? c.h : "Tanh";
    y.assign(T * D * B * H, 0);
    hidden.assign(D * B * H, 0);
    cells.assign(isLstm ? D * B * H : 0, 0);
    for (int64_t d = 0; d < D; ++d)
      for (int64_t b = 0; b < B; ++b)
        runSample(d, b);
  }
  std::vector<double> output() const { return c.output == 0 ? y : c.output == 1 ? hidden : cells; }

private:
  double input(int64_t t, int64_t b, int64_t i) const {
    return parts.at("X")[c.isBatchFirst ? (b * T + t) * I + i : (t * B + b) * I + i];
  }
  int64_t stateIndex(int64_t d, int64_t b, int64_t j) const {
    return c.isBatchFirst ? (b * D + d) * H + j : (d * B + b) * H + j;
  }
  int64_t yIndex(int64_t t, int64_t d, int64_t b, int64_t j) const {
    return c.isBatchFirst ? ((b * T + t) * D + d) * H + j : ((t * D + d) * B + b) * H + j;
  }
  double bias(int64_t d, int64_t row) const { return c.hasBias ? parts.at("Bias")[d * 2 * G * H + row] : 0; }
  double clipped(double x) const { return c.clip > 0 ? std::clamp(x, -c.clip, c.clip) : x; }
  double peephole(int64_t d, int64_t which, int64_t j, double cell) const {
    return c.hasPeepholes ? parts.at("P")[d * 3 * H + which * H + j] * cell : 0;
  }
  /// Row `row` of X W^T + Wb.
  double fromInput(int64_t d, int64_t t, int64_t b, int64_t row) const {
    double sum = bias(d, row);
    for (int64_t i = 0; i < I; ++i)
      sum += input(t, b, i) * parts.at("W")[(d * G * H + row) * I + i];
    return sum;
  }
  /// Row `row` of v R^T + Rb.
  double fromHidden(int64_t d, int64_t row, const std::vector<double> &v) const {
    double sum = bias(d, G * H + row);
    for (int64_t k = 0; k < H; ++k)
      sum += v[k] * parts.at("R")[(d * G * H + row) * H + k];
    return sum;
  }

  void runSample(int64_t d, int64_t b) {
    bool isBackwards = d == 1 || c.direction == std::string("reverse");
    int64_t length = c.hasLengths && b == 1 ? 2 : T;
    std::vector<double> state(H), cell(H);
    for (int64_t j = 0; j < H && c.hasStates; ++j) {
      state[j] = parts["H0"][stateIndex(d, b, j)];
      cell[j] = G == 4 ? parts["C0"][stateIndex(d, b, j)] : 0;
    }
    for (int64_t i = 0; i < length; ++i) {
      int64_t t = isBackwards ? length - 1 - i : i;
      step(d, t, b, state, cell);
      for (int64_t j = 0; j < H; ++j)
        y[yIndex(t, d, b, j)] = state[j];
    }
    for (int64_t j = 0; j < H; ++j) {
      hidden[stateIndex(d, b, j)] = state[j];
      if (G == 4)
        cells[stateIndex(d, b, j)] = cell[j];
    }
  }

  void step(int64_t d, int64_t t, int64_t b, std::vector<double> &state, std::vector<double> &cell) const {
    auto sum = [&](int64_t gate, int64_t j) {
      return fromInput(d, t, b, gate * H + j) + fromHidden(d, gate * H + j, state);
    };
    std::vector<double> next(H), reset(H);
    for (int64_t j = 0; j < H && G == 3; ++j)
      reset[j] = activation(f, clipped(sum(1, j))) * state[j];
    for (int64_t j = 0; j < H; ++j) {
      if (G == 1)
        next[j] = activation(f, clipped(sum(0, j)));
      if (G == 3)
        next[j] = gru(d, t, b, j, sum(0, j), sum(1, j), reset, state);
    }
    for (int64_t j = 0; j < H && G == 4; ++j) {
      double in = activation(f, clipped(sum(0, j) + peephole(d, 0, j, cell[j])));
      double forget = c.couples ? 1 - in : activation(f, clipped(sum(2, j) + peephole(d, 2, j, cell[j])));
      cell[j] = forget * cell[j] + in * activation(g, clipped(sum(3, j)));
      next[j] = activation(f, clipped(sum(1, j) + peephole(d, 1, j, cell[j]))) * activation(h, cell[j]);
    }
    state = next;
  }

  double gru(int64_t d, int64_t t, int64_t b, int64_t j, double updateSum, double resetSum,
             const std::vector<double> &reset, const std::vector<double> &state) const {
    double update = activation(f, clipped(updateSum));
    double share = c.resetsAfter ? activation(f, clipped(resetSum)) * fromHidden(d, 2 * H + j, state)
                                 : fromHidden(d, 2 * H + j, reset);
    double candidate = activation(g, clipped(fromInput(d, t, b, 2 * H + j) + share));
    return (1 - update) * candidate + update * state[j];
  }

  const RecurrentCase &c;
  const int64_t G, D;
  std::map<std::string, std::vector<double>> parts;
  std::string f, g, h;
  std::vector<double> y, hidden, cells;
};

class Recurrent : public testing::TestWithParam<RecurrentCase> {};

TEST_P(Recurrent, AgreesWithItsFormula) {
  llvm::Expected<ImportedModel> imported = importText(textOf(GetParam()));
  ASSERT_TRUE(static_cast<bool>(imported)) << llvm::toString(imported.takeError()) << textOf(GetParam());
  HostTensor x = inputOf(*imported->module, 0, 1);
  for (double &value : x.values)
    value = std::sin(1 + 1.7 * value);
  HostTensors results = runForward(*imported->module, {}, {{"x", x}});
  std::vector<double> expected = Reference(GetParam(), x.values).output();
  const std::vector<double> &y = results["y"].values;
  ASSERT_EQ(y.size(), expected.size());
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(y[i], expected[i], 1e-6) << "element " << i;
  checkGradientsAt(*imported->module, x);
}

INSTANTIATE_TEST_SUITE_P(All, Recurrent, testing::ValuesIn(cases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace

} // namespace fsdpc
