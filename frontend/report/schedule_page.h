// OUT/schedule.html: the predicted step as a page that needs no network.
//
// The page is schedule_page/ (page.html, style.css and scripts, as separate files) with the schedule embedded as JSON.
// Strings of the model are data of that JSON only. The scripts insert them as text. The columns of the JSON (schema
// fsdpc.schedule_page/1) are described at the top of schedule_page.cpp.
#pragma once

#include "frontend/report/step_times.h"
#include "ir/target.h"

namespace fsdpc {

struct SchedulePageOptions {
  std::string resources; ///< the folder that has frontend/report/schedule_page/
  std::string title;
  std::string planHash; ///< profiles of other plans are refused
  /// Facts about the compile in the head of the page: (term, value).
  std::vector<std::pair<std::string, std::string>> facts;
  /// Traces that --profile of the program wrote, to be drawn together with the prediction: (file, text).
  std::vector<std::pair<std::string, std::string>> profiles;
};

/// The data of the page. Requires stage planned.
std::string scheduleJson(const Module &planned, const Target &target, const Timeline &timeline,
                         const SchedulePageOptions &options);

/// The complete page. Errors: the installation lacks the page's files, or a profile is not JSON (the message names its
/// file).
llvm::Expected<std::string> schedulePage(const Module &planned, const Target &target, const Timeline &timeline,
                                         const SchedulePageOptions &options);

} // namespace fsdpc
