// Records as lines of JSON, to carry them from one machine to another.
#include <nlohmann/json.hpp>

#include "base/codes.hpp"
#include "database/database.hpp"

namespace cleave::database {

namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "cleave.tunings/1";

Json json_of(const Record& r) {
  return {{"key", r.key},
          {"environment", r.environment},
          {"threads", r.threads},
          {"name", r.name},
          {"target", r.target},
          {"dims", r.dims},
          {"machine", r.machine},
          {"summary", r.summary},
          {"program", r.program},
          {"seconds", r.seconds},
          {"unfused_seconds", r.unfused_seconds},
          {"speedup", r.speedup},
          {"low", r.low},
          {"high", r.high},
          {"tuning_seconds", r.tuning_seconds},
          {"tried", r.tried},
          {"complete", r.complete},
          {"created", r.created},
          {"used", r.used},
          {"uses", r.uses}};
}

Record record_of(const Json& j) {
  Record r;
  r.key = j.at("key").get<std::string>();
  r.environment = j.at("environment").get<std::string>();
  r.threads = j.at("threads").get<int>();
  r.name = j.at("name").get<std::string>();
  r.target = j.at("target").get<std::string>();
  r.dims = j.at("dims").get<std::string>();
  r.machine = j.at("machine").get<std::string>();
  r.summary = j.at("summary").get<std::string>();
  r.program = j.at("program").get<std::string>();
  r.seconds = j.at("seconds").get<double>();
  r.unfused_seconds = j.at("unfused_seconds").get<double>();
  r.speedup = j.at("speedup").get<double>();
  r.low = j.at("low").get<double>();
  r.high = j.at("high").get<double>();
  r.tuning_seconds = j.at("tuning_seconds").get<double>();
  r.tried = j.at("tried").get<int64_t>();
  r.complete = j.at("complete").get<bool>();
  r.created = j.at("created").get<int64_t>();
  r.used = j.at("used").get<int64_t>();
  r.uses = j.at("uses").get<int64_t>();
  return r;
}

}  // namespace

std::string to_text(const std::vector<Record>& records) {
  std::string out = Json{{"format", kFormat}, {"records", records.size()}}.dump() + "\n";
  for (const Record& r : records) out += json_of(r).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return out;
}

Result<std::vector<Record>> from_text(const std::string& name, const std::string& text) {
  std::vector<Record> out;
  size_t line = 0, begin = 0;
  bool headed = false;
  auto fail = [&](const std::string& why) { return diagnose(Code::database_import, name, line, why); };
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view one = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (one.empty()) continue;
    const Json j = Json::parse(one, nullptr, false);
    if (j.is_discarded() || !j.is_object()) return fail("it is no JSON object");
    if (!headed) {
      if (j.value("format", Json()) != kFormat) return fail(fmt::format("its format is not `{}`", kFormat));
      headed = true;
      continue;
    }
    try {
      Record r = record_of(j);
      if (r.key.empty() || r.environment.empty() || r.threads < 1 || r.threads > 1 << 20 || r.created < 0)
        return fail("a field has no sensible value");
      out.push_back(std::move(r));
    } catch (const Json::exception& e) {
      return fail(e.what());
    }
  }
  line = 1;
  if (!headed) return fail("it is empty");
  return out;
}

}  // namespace cleave::database
