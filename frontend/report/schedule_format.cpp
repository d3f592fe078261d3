#include "frontend/report/schedule_format.h"

#include "ir/op.h"
#include "ir/ops/attributes.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

namespace fsdpc {

namespace {

using llvm::formatv;

llvm::StringRef unitName(const Module &module, int32_t unit) {
  return unit < 0 ? llvm::StringRef() : llvm::StringRef(module.units[unit].name);
}

double microseconds(const TimelineCollective &collective) {
  return collective.endMicroseconds - collective.beginMicroseconds;
}

std::string summary(const FunctionTimeline &function) {
  return formatv("{0}: {1:F1} us, of which {2:F1} us exposed of {3:F1} us of communication",
                 nameOf(function.function->kind()), function.microseconds, function.exposedMicroseconds,
                 function.communicationMicroseconds)
      .str();
}

void writeRows(llvm::raw_ostream &out, llvm::StringRef title, llvm::ArrayRef<TimelineCollective> transfers) {
  if (!transfers.empty())
    out << "       begin          end      exposed  " << title << '\n';
  for (const TimelineCollective &transfer : transfers) {
    out << formatv("{0,12:F1} {1,12:F1} {2,12:F1}  {3}", transfer.beginMicroseconds, transfer.endMicroseconds,
                   transfer.exposedMicroseconds, transferText(*transfer.start));
    if (!transfer.hiddenBehind.empty())
      out << "; behind " << hiddenBehindText(transfer);
    out << "; not earlier: " << whyNotEarlier(transfer) << '\n';
  }
}

std::string asTable(const Timeline &timeline) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << formatv("step: {0:F1} us, of which {1:F1} us exposed of {2:F1} us of communication (predicted)\n",
                 timeline.stepMicroseconds, timeline.exposedMicroseconds, timeline.communicationMicroseconds);
  for (const FunctionTimeline &function : timeline.functions) {
    if (function.nodes.empty() && function.collectives.empty())
      continue;
    out << '\n'
        << (function.callsPerStep > 1 ? std::to_string(function.callsPerStep) + " times " : "") << summary(function)
        << '\n';
    writeRows(out, "collective", function.collectives);
    writeRows(out, "copy to or from the host", function.copies);
  }
  return text;
}

void writeTransfer(llvm::json::OStream &json, const Module &module, const TimelineCollective &transfer) {
  const Node &start = *transfer.start;
  json.object([&] {
    if (startsCollective(start))
      json.attribute("id", start.get<CollectiveAttributes>().id);
    else
      json.attribute("value", start.operand(0)->name());
    json.attribute("op", infoOf(start).name.split('.').first);
    json.attribute("unit", unitName(module, start.unit));
    json.attribute("stream", nameOf(start.schedule.stream));
    json.attribute("issued_us", transfer.issuedMicroseconds);
    json.attribute("begin_us", transfer.beginMicroseconds);
    json.attribute("end_us", transfer.endMicroseconds);
    json.attribute("wait_us", transfer.waitMicroseconds);
    json.attribute("exposed_us", transfer.exposedMicroseconds);
    json.attribute("hidden_behind", hiddenBehindText(transfer));
    json.attribute("why_not_earlier", whyNotEarlier(transfer));
  });
}

void writeTransfers(llvm::json::OStream &json, const Module &module, const FunctionTimeline &function) {
  json.attributeArray("collectives", [&] {
    for (const TimelineCollective &collective : function.collectives)
      writeTransfer(json, module, collective);
  });
  json.attributeArray("copies", [&] {
    for (const TimelineCollective &copy : function.copies)
      writeTransfer(json, module, copy);
  });
}

void writeNode(llvm::json::OStream &json, const Module &module, const TimelineNode &entry) {
  json.object([&] {
    json.attribute("op", infoOf(*entry.node).name);
    json.attribute("unit", unitName(module, entry.node->section.unit));
    json.attribute("phase", nameOf(entry.node->section.phase));
    json.attribute("begin_us", entry.beginMicroseconds);
    json.attribute("end_us", entry.endMicroseconds);
  });
}

void writeFunction(llvm::json::OStream &json, const Module &module, const FunctionTimeline &function) {
  json.object([&] {
    json.attribute("name", nameOf(function.function->kind()));
    json.attribute("calls_per_step", function.callsPerStep);
    json.attribute("us", function.microseconds);
    json.attribute("exposed_us", function.exposedMicroseconds);
    json.attribute("communication_us", function.communicationMicroseconds);
    writeTransfers(json, module, function);
    json.attributeArray("nodes", [&] {
      for (const TimelineNode &node : function.nodes)
        writeNode(json, module, node);
    });
  });
}

std::string asJson(const Module &module, const Timeline &timeline) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::json::OStream json(out, 1);
  json.object([&] {
    json.attribute("schema", "fsdpc.schedule/1");
    json.attribute("step_us", timeline.stepMicroseconds);
    json.attribute("exposed_us", timeline.exposedMicroseconds);
    json.attribute("communication_us", timeline.communicationMicroseconds);
    json.attributeArray("functions", [&] {
      for (const FunctionTimeline &function : timeline.functions)
        writeFunction(json, module, function);
    });
  });
  out << '\n';
  return text;
}

/// RFC 4180: names of units come from the model.
std::string csvField(llvm::StringRef text) {
  if (text.find_first_of(",\"\r\n") == llvm::StringRef::npos)
    return text.str();
  std::string quoted = "\"";
  for (char c : text)
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void writeRow(llvm::raw_ostream &out, const Module &module, llvm::StringRef function, llvm::StringRef id,
              const TimelineCollective &transfer) {
  const Node &start = *transfer.start;
  out << formatv("{0},{1},{2},{3},{4},{5:F3},{6:F3},{7:F3},{8},{9}\n", function, nameOf(start.schedule.stream),
                 infoOf(start).name.split('.').first, id, csvField(unitName(module, start.unit)),
                 transfer.beginMicroseconds, transfer.endMicroseconds, transfer.exposedMicroseconds,
                 csvField(hiddenBehindText(transfer)), csvField(whyNotEarlier(transfer)));
}

std::string asCsv(const Module &module, const Timeline &timeline) {
  std::string text = "function,stream,op,id,unit,begin_us,end_us,exposed_us,hidden_behind,why_not_earlier\n";
  llvm::raw_string_ostream out(text);
  for (const FunctionTimeline &function : timeline.functions) {
    llvm::StringRef name = nameOf(function.function->kind());
    for (const TimelineNode &entry : function.nodes)
      out << formatv("{0},compute,{1},,{2},{3:F3},{4:F3},0,,\n", name, infoOf(*entry.node).name,
                     csvField(unitName(module, entry.node->section.unit)), entry.beginMicroseconds,
                     entry.endMicroseconds);
    for (const TimelineCollective &collective : function.collectives)
      writeRow(out, module, name, std::to_string(collective.start->get<CollectiveAttributes>().id), collective);
    for (const TimelineCollective &copy : function.copies)
      writeRow(out, module, name, "", copy);
  }
  return text;
}

/// One complete event ("X") of the trace event format; streams are threads.
void writeEvent(llvm::json::OStream &json, llvm::StringRef name, Stream stream, double begin, double end,
                llvm::StringRef unit, llvm::StringRef why) {
  json.object([&] {
    json.attribute("name", name);
    json.attribute("ph", "X");
    json.attribute("pid", 0);
    json.attribute("tid", static_cast<int64_t>(stream));
    json.attribute("ts", begin);
    json.attribute("dur", end - begin);
    json.attributeObject("args", [&] {
      json.attribute("unit", unit);
      if (!why.empty())
        json.attribute("why_not_earlier", why);
    });
  });
}

void writeFunctionEvents(llvm::json::OStream &json, const Module &module, const FunctionTimeline &function,
                         double from) {
  for (const TimelineNode &entry : function.nodes)
    writeEvent(json, infoOf(*entry.node).name, Stream::compute, from + entry.beginMicroseconds,
               from + entry.endMicroseconds, unitName(module, entry.node->section.unit), "");
  for (const std::vector<TimelineCollective> *transfers : {&function.collectives, &function.copies})
    for (const TimelineCollective &transfer : *transfers) {
      const Node &start = *transfer.start;
      const std::string text = transferText(start);
      writeEvent(json, text, start.schedule.stream, from + transfer.beginMicroseconds, from + transfer.endMicroseconds,
                 unitName(module, start.unit), whyNotEarlier(transfer));
      if (transfer.exposedMicroseconds > 0)
        writeEvent(json, "wait for " + text, Stream::compute, from + transfer.waitMicroseconds,
                   from + transfer.waitMicroseconds + transfer.exposedMicroseconds, unitName(module, start.unit), "");
    }
}

std::string asChromeTrace(const Module &module, const Timeline &timeline) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::json::OStream json(out);
  json.array([&] {
    for (Stream stream : {Stream::compute, Stream::comm, Stream::reduce, Stream::copy})
      json.object([&] {
        json.attribute("name", "thread_name");
        json.attribute("ph", "M");
        json.attribute("pid", 0);
        json.attribute("tid", static_cast<int64_t>(stream));
        json.attributeObject("args", [&] { json.attribute("name", nameOf(stream)); });
      });
    double from = 0;
    for (const FunctionTimeline &function : timeline.functions)
      for (int64_t call = 0; call < function.callsPerStep; ++call) {
        writeFunctionEvents(json, module, function, from);
        from += function.microseconds;
      }
  });
  out << '\n';
  return text;
}

} // namespace

std::string scheduleText(const Module &planned, const Timeline &timeline, llvm::StringRef format) {
  if (format == "json")
    return asJson(planned, timeline);
  if (format == "csv")
    return asCsv(planned, timeline);
  if (format == "chrome")
    return asChromeTrace(planned, timeline);
  return asTable(timeline);
}

std::vector<std::string> scheduleRemarks(const Timeline &timeline) {
  std::vector<std::string> remarks;
  for (const FunctionTimeline &function : timeline.functions) {
    if (function.callsPerStep == 0)
      continue;
    for (const TimelineCollective &collective : function.collectives) {
      std::string behind = hiddenBehindText(collective);
      remarks.push_back(formatv("schedule: {0} in {1}: {2:F1} us, {3:F1} us exposed{4}; not earlier: {5}",
                                collectiveText(*collective.start), nameOf(function.function->kind()),
                                microseconds(collective), collective.exposedMicroseconds,
                                behind.empty() ? "" : ", behind " + behind, whyNotEarlier(collective))
                            .str());
    }
  }
  return remarks;
}

std::string optReport(const Module &planned, const Timeline &timeline, llvm::ArrayRef<std::string> remarks) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::json::OStream json(out, 1);
  json.object([&] {
    json.attribute("schema", "fsdpc.opt_report/1");
    json.attribute("step_us", timeline.stepMicroseconds);
    json.attribute("exposed_us", timeline.exposedMicroseconds);
    json.attributeArray("remarks", [&] {
      for (const std::string &remark : remarks)
        json.value(remark);
    });
    json.attributeArray("functions", [&] {
      for (const FunctionTimeline &function : timeline.functions)
        json.object([&] {
          json.attribute("name", nameOf(function.function->kind()));
          writeTransfers(json, planned, function);
        });
    });
  });
  out << '\n';
  return text;
}

} // namespace fsdpc
