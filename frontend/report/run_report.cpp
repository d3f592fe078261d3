#include "frontend/report/run_report.h"

#include "frontend/report/page_parts.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

namespace fsdpc {

namespace {

namespace json = llvm::json;

class RunReader {
public:
  explicit RunReader(llvm::StringRef name) : name(name) {}

  llvm::Error read(llvm::StringRef text) {
    for (size_t number = 1; !text.empty(); ++number) {
      const size_t end = text.find('\n');
      llvm::Expected<json::Value> line = json::parse(text.take_front(end));
      const bool isCut = end == llvm::StringRef::npos;
      if (line && line->getAsObject())
        take(*line->getAsObject());
      else if (!line && isCut)
        llvm::consumeError(line.takeError());
      else
        return llvm::createStringError(name + ": line " + std::to_string(number) + " is no line of a log" +
                                       (line ? "" : ": " + toString(line.takeError())));
      text = isCut ? "" : text.drop_front(end + 1);
    }
    return llvm::Error::success();
  }

  json::Value result() {
    json::Object figures;
    for (auto &[figure, points] : series)
      figures[figure] = std::move(points);
    return json::Object{{"name", json::fixUTF8(name)},
                        {"settings", std::move(settings)},
                        {"series", std::move(figures)},
                        {"events", std::move(events)}};
  }

private:
  void take(const json::Object &line) {
    if (const json::Object *given = line.getObject("settings"))
      return flatten("", *given);
    if (std::optional<int64_t> step = line.getInteger("step"))
      return takeFigures(*step, line);
    for (const auto &[key, value] : line)
      takeEvent(key, value, line);
  }

  /// Objects in objects become names with dots. Settings have two levels.
  void flatten(const std::string &prefix, const json::Object &object) {
    for (const auto &[key, value] : object) {
      const std::string path = prefix + key.str();
      if (const json::Object *inner = value.getAsObject(); inner && prefix.empty())
        flatten(path + ".", *inner);
      else
        settings[path] = value;
    }
  }

  void takeFigures(int64_t step, const json::Object &line) {
    last = step;
    for (const auto &[key, value] : line)
      if (std::optional<double> number = value.getAsNumber(); number && key != "step")
        series[key.str()].push_back(json::Array{step, *number});
  }

  void takeEvent(llvm::StringRef key, const json::Value &value, const json::Object &line) {
    if (key == "skipped_step") {
      events.push_back(json::Array{value, "skipped: " + line.getString("why").value_or("").str()});
    } else if (key == "note") {
      events.push_back(json::Array{last, value});
    } else if (const json::Object *object = value.getAsObject(); object && (key == "checkpoint" || key == "resumed")) {
      const std::string path = object->getString(key == "checkpoint" ? "path" : "checkpoint").value_or("").str();
      events.push_back(json::Array{object->getInteger("step").value_or(last), key.str() + " " + path});
    } else if (object && key == "straggler") {
      events.push_back(json::Array{last, "rank " + std::to_string(object->getInteger("rank").value_or(-1)) +
                                             " is slower than the others"});
    }
  }

  std::string name;
  json::Object settings;
  std::map<std::string, json::Array> series;
  json::Array events;
  int64_t last = 0;
};

} // namespace

llvm::Expected<std::string> runReportJson(llvm::ArrayRef<LogText> logs) {
  json::Array runs;
  for (const LogText &log : logs) {
    RunReader reader(log.name);
    if (llvm::Error error = reader.read(log.text))
      return error;
    runs.push_back(reader.result());
  }
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(
      json::Object{{"schema", "fsdpc.run_report/1"}, {"runs", std::move(runs)}});
  return text;
}

llvm::Expected<std::string> runReport(llvm::ArrayRef<LogText> logs, llvm::StringRef resources) {
  llvm::Expected<std::string> data = runReportJson(logs);
  if (!data)
    return data.takeError();
  return assemblePage(resources, "run_page", {"style.css", "page.js"}, {{"RUNS", std::move(*data)}});
}

} // namespace fsdpc
