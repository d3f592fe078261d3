// fsdpc.hardware/2: the table as text. Files are user input: every value is checked.
#include "passes/cost/hardware.h"

#include "ir/read_json.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

namespace fsdpc {

namespace {

llvm::json::Object linkJson(const Link &link) {
  llvm::json::Array rates;
  for (const CollectiveRate &rate : link.rates)
    rates.push_back(llvm::json::Object{{"op", rate.op},
                                       {"alpha_us", rate.alphaMicroseconds},
                                       {"hop_us", rate.hopMicroseconds},
                                       {"bytes_per_us", rate.bytesPerMicrosecond}});
  llvm::json::Object object{{"algorithm", link.algorithm == Algorithm::ring ? "ring" : "peer_read"},
                            {"rates", std::move(rates)}};
  if (link.slowMicroseconds > 0)
    object["slow_us"] = link.slowMicroseconds;
  if (link.slowBytesPerMicrosecond > 0)
    object["slow_bytes_per_us"] = link.slowBytesPerMicrosecond;
  return object;
}

/// Reads members of one object and records the first error.
class Reader {
public:
  explicit Reader(llvm::StringRef source) : source(source) {}

  void read(const llvm::json::Object &object, llvm::StringRef where, llvm::StringRef key, double &value,
            bool mayBeZero) {
    const llvm::json::Value *member = object.get(key);
    if (!member)
      return;
    std::optional<double> number = member->getAsNumber();
    if (!number || !std::isfinite(*number) || *number < 0 || (!mayBeZero && *number == 0))
      return fail(where + "." + key + ": a number " + (mayBeZero ? "of 0 or more" : "above 0") + " is expected");
    value = *number;
  }

  void readRate(const llvm::json::Object &object, llvm::StringRef where, ComputeRate &rate) {
    read(object, where, "flops_per_us", rate.flopsPerMicrosecond, false);
    rate.halfFlopsPerMicrosecond = rate.flopsPerMicrosecond;
    read(object, where, "half_flops_per_us", rate.halfFlopsPerMicrosecond, false);
    read(object, where, "bytes_per_us", rate.bytesPerMicrosecond, false);
    read(object, where, "overhead_us", rate.overheadMicroseconds, true);
  }

  void readLink(const llvm::json::Object &object, llvm::StringRef where, Link &link) {
    if (std::optional<llvm::StringRef> algorithm = object.getString("algorithm")) {
      link.algorithm = *algorithm == "ring" ? Algorithm::ring : Algorithm::peerRead;
      if (*algorithm != "ring" && *algorithm != "peer_read")
        fail(where + ".algorithm: ring or peer_read is expected");
    }
    if (const llvm::json::Array *rates = object.getArray("rates"))
      readRates(*rates, where, link);
    read(object, where, "slow_us", link.slowMicroseconds, true);
    read(object, where, "slow_bytes_per_us", link.slowBytesPerMicrosecond, true);
  }

  void fail(const llvm::Twine &message) {
    if (problem.empty())
      problem = (source + ": " + message).str();
  }
  llvm::Error takeError() const { return problem.empty() ? llvm::Error::success() : llvm::createStringError(problem); }

private:
  void readRates(const llvm::json::Array &rates, llvm::StringRef where, Link &link) {
    link.rates.clear();
    for (const llvm::json::Value &value : rates) {
      const llvm::json::Object *row = value.getAsObject();
      if (!row)
        return fail(where + ".rates: a list of objects is expected");
      CollectiveRate rate;
      rate.op = row->getString("op").value_or("").str();
      read(*row, where, "alpha_us", rate.alphaMicroseconds, true);
      read(*row, where, "hop_us", rate.hopMicroseconds, true);
      read(*row, where, "bytes_per_us", rate.bytesPerMicrosecond, false);
      link.rates.push_back(std::move(rate));
    }
    if (link.rates.empty())
      fail(where + ".rates: at least one is needed");
  }

  llvm::StringRef source;
  std::string problem;
};

} // namespace

std::string toJson(const Hardware &hardware) {
  llvm::json::Object compute;
  for (size_t i = 0; i < computeClassCount; ++i) {
    const ComputeRate &rate = hardware.compute[i];
    compute[nameOf(static_cast<ComputeClass>(i))] =
        llvm::json::Object{{"flops_per_us", rate.flopsPerMicrosecond},
                           {"half_flops_per_us", rate.halfFlopsPerMicrosecond},
                           {"bytes_per_us", rate.bytesPerMicrosecond},
                           {"overhead_us", rate.overheadMicroseconds}};
  }
  llvm::json::Object object{
      {"schema", hardwareSchema},
      {"name", hardware.name},
      {"ranks_per_node", hardware.ranksPerNode},
      {"host_runs_ahead", hardware.hostRunsAhead},
      {"floor_us", hardware.floorMicroseconds},
      {"compute", std::move(compute)},
      {"node_local", linkJson(hardware.nodeLocal)},
      {"network", linkJson(hardware.network)},
      {"host", llvm::json::Object{{"alpha_us", hardware.host.alphaMicroseconds},
                                  {"bytes_per_us", hardware.host.bytesPerMicrosecond},
                                  {"compute_bytes_per_us", hardware.host.computeBytesPerMicrosecond}}}};
  return llvm::formatv("{0:2}\n", llvm::json::Value(std::move(object))).str();
}

llvm::Expected<Hardware> readHardware(llvm::StringRef text, llvm::StringRef source) {
  llvm::Expected<llvm::json::Value> value = readJson(text);
  if (!value)
    return llvm::createStringError(source + ": " + toString(value.takeError()));
  const llvm::json::Object *object = value->getAsObject();
  if (!object || object->getString("schema").value_or("") != hardwareSchema)
    return llvm::createStringError(source + ": not a hardware table of schema " + hardwareSchema +
                                   ", which fsdpc calibrate writes");
  Hardware hardware = *builtInHardware("cpu"); // defaults for omitted members
  Reader reader(source);
  hardware.name = object->getString("name").value_or("").str();
  double ranksPerNode = 0;
  reader.read(*object, "table", "ranks_per_node", ranksPerNode, true);
  if (ranksPerNode > (1 << 20))
    reader.fail("ranks_per_node: at most 1048576");
  else
    hardware.ranksPerNode = static_cast<int64_t>(ranksPerNode);
  hardware.hostRunsAhead = object->getBoolean("host_runs_ahead").value_or(false);
  reader.read(*object, "table", "floor_us", hardware.floorMicroseconds, true);
  if (const llvm::json::Object *compute = object->getObject("compute"))
    for (size_t i = 0; i < computeClassCount; ++i) {
      llvm::StringRef name = nameOf(static_cast<ComputeClass>(i));
      if (const llvm::json::Object *rate = compute->getObject(name))
        reader.readRate(*rate, name, hardware.compute[i]);
    }
  if (const llvm::json::Object *link = object->getObject("node_local"))
    reader.readLink(*link, "node_local", hardware.nodeLocal);
  if (const llvm::json::Object *link = object->getObject("network"))
    reader.readLink(*link, "network", hardware.network);
  if (const llvm::json::Object *host = object->getObject("host")) {
    reader.read(*host, "host", "alpha_us", hardware.host.alphaMicroseconds, true);
    reader.read(*host, "host", "bytes_per_us", hardware.host.bytesPerMicrosecond, false);
    reader.read(*host, "host", "compute_bytes_per_us", hardware.host.computeBytesPerMicrosecond, true);
  }
  if (llvm::Error error = reader.takeError())
    return error;
  return hardware;
}

} // namespace fsdpc
