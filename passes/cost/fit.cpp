#include "passes/cost/fit.h"

#include "ir/read_json.h"
#include <cmath>

namespace fsdpc {

namespace {

struct Line {
  double overheadMicroseconds = 0;
  double microsecondsPerUnit = 0;
};

/// Least squares of the relative error: minimizes the sum of ((a + b x) / t - 1)^2, a and b not negative.
std::optional<Line> fitLine(llvm::ArrayRef<CostSample> samples, llvm::StringRef kind, double CostSample::*work) {
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0; // u = 1 / t, v = x / t
  int count = 0;
  for (const CostSample &sample : samples) {
    if (sample.kind != kind || sample.microseconds <= 0 || sample.*work <= 0)
      continue;
    double u = 1 / sample.microseconds, v = sample.*work / sample.microseconds;
    uu += u * u, uv += u * v, vv += v * v, u1 += u, v1 += v;
    ++count;
  }
  if (count == 0)
    return std::nullopt;
  double determinant = uu * vv - uv * uv;
  if (count > 1 && determinant > 1e-9 * uu * vv) {
    Line line{(u1 * vv - v1 * uv) / determinant, (v1 * uu - u1 * uv) / determinant};
    if (line.overheadMicroseconds >= 0 && line.microsecondsPerUnit > 0)
      return line;
  }
  return Line{0, v1 / vv};
}

/// Compute-bound classes are fitted by flops, memory-bound classes by bytes; the other limit never applies.
bool isBoundByFlops(ComputeClass computeClass) {
  return computeClass == ComputeClass::matmul || computeClass == ComputeClass::convolution ||
         computeClass == ComputeClass::attention || computeClass == ComputeClass::softmax;
}

constexpr double neverBinds = 1e12;

void setFlops(ComputeRate &rate, double flopsPerMicrosecond) {
  rate.flopsPerMicrosecond = rate.halfFlopsPerMicrosecond = flopsPerMicrosecond;
}

void fitClass(Hardware &hardware, ComputeClass computeClass, llvm::ArrayRef<CostSample> samples) {
  bool byFlops = isBoundByFlops(computeClass);
  std::optional<Line> line = fitLine(samples, nameOf(computeClass), byFlops ? &CostSample::flops : &CostSample::bytes);
  if (!line)
    return;
  ComputeRate &rate = hardware.rateOf(computeClass);
  rate.overheadMicroseconds = line->overheadMicroseconds;
  double perMicrosecond = 1 / line->microsecondsPerUnit;
  rate.bytesPerMicrosecond = byFlops ? neverBinds : perMicrosecond;
  setFlops(rate, byFlops ? perMicrosecond : neverBinds);
}

void fitLoops(Hardware &hardware, llvm::ArrayRef<CostSample> samples) {
  ComputeRate &rate = hardware.rateOf(ComputeClass::loop);
  if (std::optional<Line> line = fitLine(samples, "loop_memory", &CostSample::bytes)) {
    rate.overheadMicroseconds = line->overheadMicroseconds;
    rate.bytesPerMicrosecond = 1 / line->microsecondsPerUnit;
  }
  if (std::optional<Line> line = fitLine(samples, "loop_flops", &CostSample::flops))
    setFlops(rate, 1 / line->microsecondsPerUnit);
}

void fitLink(Link &link, llvm::ArrayRef<CostSample> samples) {
  std::vector<CollectiveRate> rates;
  for (llvm::StringRef op : {"all_gather", "reduce_scatter", "all_reduce"})
    if (std::optional<Line> line = fitLine(samples, op, &CostSample::bytes))
      rates.push_back({op.str(), line->overheadMicroseconds, 0, 1 / line->microsecondsPerUnit});
  if (rates.size() == 3)
    link.rates = std::move(rates);
}

} // namespace

llvm::Expected<std::vector<CostSample>> readSamples(llvm::StringRef text) {
  std::vector<CostSample> samples;
  llvm::SmallVector<llvm::StringRef, 64> lines;
  text.split(lines, '\n', -1, false);
  for (llvm::StringRef line : lines) {
    llvm::Expected<llvm::json::Value> value = readJson(line);
    if (!value)
      return value.takeError();
    const llvm::json::Object *object = value->getAsObject();
    if (!object || !object->getString("kind") || !object->getNumber("us"))
      return llvm::createStringError("not a sample: " + line);
    samples.push_back({object->getString("kind")->str(), object->getNumber("flops").value_or(0),
                       object->getNumber("bytes").value_or(0), *object->getNumber("us")});
  }
  return samples;
}

Hardware fitHardware(Hardware base, llvm::ArrayRef<CostSample> shared, llvm::ArrayRef<CostSample> mpi) {
  for (size_t i = 0; i < computeClassCount; ++i)
    fitClass(base, static_cast<ComputeClass>(i), shared);
  fitLoops(base, shared);
  fitLink(base.nodeLocal, shared);
  fitLink(base.network, mpi);
  return base;
}

} // namespace fsdpc
