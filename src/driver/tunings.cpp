#include "driver/tunings.hpp"

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/codes.hpp"
#include "driver/constants.hpp"
#include "driver/sha256.hpp"
#include "frontend/file.hpp"

namespace cleave::driver {

namespace {

using database::Database;
using database::Record;

std::string hash(const std::string& text) { return sha256_hex(std::as_bytes(std::span(text))); }

// The problem: graph with its constants, dtypes and extents, target, and what decides which candidates there are; never
// the number of threads.
std::string key_of(const Compilation& c) {
  std::string text;
  const graph::Graph named = with_constant_files(
      *c.bound,
      [&](const std::string& path, const std::vector<std::byte>& b) { text += path + " " + sha256_hex(b) + "\n"; });
  text += graph::print(named);
  for (const DimBinding& d : c.dims)
    text += fmt::format("dim {} {}..{}@{}\n", d.name, d.option.lo, d.option.hi, d.option.representative);
  text += fmt::format("target {} {}\ntop {} split {}\n", c.options.target, name(c.machine.isa), c.options.top,
                      c.options.split);
  for (const std::string& pass : c.options.disabled) text += "without " + pass + "\n";
  for (const std::string& part : c.options.without) text += "without " + part + "\n";
  return hash(text);
}

// What measurements depend on, but for the ceilings, which differ a little each time they are measured.
std::string environment_of(const Compilation& c) {
  Machine m = c.machine;
  m.peak_gflops = m.l2_gbytes = m.l3_gbytes = m.dram_gbytes = m.exp_cycles = m.gigahertz = 0;
  return hash(fmt::format("{}\n{}", version(), print(m)));
}

std::string date(int64_t seconds) {
  const std::time_t t = seconds;
  std::tm utc{};
  gmtime_r(&t, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &utc);
  return text;
}

void note_unused(Compilation& c, const Diagnostics& bad) {
  c.notes.push_back(fmt::format("the tuning database was not used: {}", bad.front().message()));
}

}  // namespace

Recall recall(Compilation& c) {
  Recall out;
  if (c.options.database.empty() || c.options.deterministic) return out;
  out.key = key_of(c);
  out.environment = environment_of(c);
  std::error_code error;
  if (!std::filesystem::exists(c.options.database, error)) return out;
  auto db = Database::open(c.options.database, Database::Mode::read);
  if (!db) {
    note_unused(c, db.errors());
    out.key.clear();
    return out;
  }
  const auto found = db->find(out.key, out.environment, c.options.threads);
  if (!found) {
    note_unused(c, found.errors());
    return out;
  }
  if (!*found) return out;
  const Record& r = **found;
  // A search that a smaller budget ended goes on.
  if (!r.complete && r.tuning_seconds < 0.9 * c.options.budget.seconds) return out;
  tune::Remembered known;
  known.current = r.environment == out.environment;
  known.seconds = r.seconds;
  known.unfused_seconds = r.unfused_seconds;
  known.speedup = r.speedup;
  known.interval = {r.low, r.high};
  if (!r.program.empty()) {
    for (size_t i = 0; i < c.proposals.size() && known.proposal < 0; ++i)
      if (hash(tile::print(c.proposals[i].candidate.program)) == r.program) known.proposal = static_cast<int>(i);
    if (known.proposal < 0) return out;  // this version no longer proposes it
  }
  out.remembered = known;
  out.record = r.id;
  c.options.log(fmt::format("record {} of the tuning database", r.id));
  return out;
}

void remember(Compilation& c, const Recall& known) {
  const tune::Outcome& o = *c.outcome;
  if (known.key.empty() || o.stop == tune::Stop::deterministic || o.stop == tune::Stop::interrupted) return;
  const bool recalled = o.stop == tune::Stop::remembered;
  if (recalled)
    c.notes.push_back(fmt::format("taken from record {} of the tuning database{}", known.record,
                                  known.remembered->current ? "; verified again, not measured again"
                                                            : " of another environment; verified and measured again"));
  auto db = Database::open(c.options.database, Database::Mode::write);
  if (!db) return note_unused(c, db.errors());
  Diagnostics bad;
  if (recalled && known.remembered->current) {
    bad = db->mark_used(known.record);
  } else {
    Record r;
    r.key = known.key;
    r.environment = known.environment;
    r.threads = c.options.threads;
    r.name = c.bound->name();
    r.target = c.options.target;
    for (const DimBinding& d : c.dims)
      r.dims += fmt::format("{}{}={}", r.dims.empty() ? "" : ", ", d.name, d.option.representative);
    r.machine = fmt::format("{}, {} cores", c.machine.name, c.machine.cores);
    r.summary = o.candidate.summary;
    if (o.chosen >= 0) r.program = hash(tile::print(o.candidate.program));
    r.seconds = o.seconds;
    r.unfused_seconds = o.unfused_seconds;
    r.speedup = o.speedup;
    r.low = o.speedup_interval.low;
    r.high = o.speedup_interval.high;
    r.tuning_seconds = c.seconds("total");
    for (const tune::Trial& t : o.trials) r.tried += t.state != tune::Trial::State::waiting;
    r.complete = recalled || o.stop == tune::Stop::exhausted || o.stop == tune::Stop::no_gain;
    bad = db->put(r);
  }
  if (!bad.empty()) note_unused(c, bad);
}

namespace {

using Json = nlohmann::json;

Json json_of(const Record& r) {
  return {{"id", r.id},
          {"key", r.key},
          {"name", r.name},
          {"dims", r.dims},
          {"target", r.target},
          {"threads", r.threads},
          {"machine", r.machine},
          {"environment", r.environment},
          {"summary", r.summary},
          {"unfused", r.program.empty()},
          {"program", r.program},
          {"time_ms", r.seconds * 1e3},
          {"baseline_ms", r.unfused_seconds * 1e3},
          {"speedup", r.speedup},
          {"speedup_interval", {r.low, r.high}},
          {"tuning_seconds", r.tuning_seconds},
          {"tried", r.tried},
          {"complete", r.complete},
          {"created", r.created},
          {"used", r.used},
          {"uses", r.uses}};
}

std::string list_text(const std::vector<Record>& records) {
  if (records.empty()) return "no records\n";
  std::string out = fmt::format("{:>5}  {:<24} {:>7} {:>10} {:>9}  {:<16} {}\n", "id", "name", "threads", "ms",
                                "speedup", "found", "schedule");
  for (const Record& r : records)
    out += fmt::format("{:>5}  {:<24} {:>7} {:>10.3f} {:>8.3f}x  {:<16} {}\n", r.id, r.name, r.threads, r.seconds * 1e3,
                       r.speedup, date(r.created), r.summary);
  return out;
}

std::string show_text(const Record& r) {
  std::string out = fmt::format("record {} of `{}`{}\n", r.id, r.name, r.dims.empty() ? "" : " with " + r.dims);
  auto line = [&](const char* what, const std::string& value) { out += fmt::format("  {:<12} {}\n", what, value); };
  line("key", r.key);
  line("target", r.target);
  line("threads", std::to_string(r.threads));
  line("machine", r.machine);
  line("environment", r.environment);
  line("schedule", r.summary);
  line("program", r.program.empty() ? "the unfused one" : r.program);
  line("time", fmt::format("{:.3f} ms, unfused {:.3f} ms", r.seconds * 1e3, r.unfused_seconds * 1e3));
  line("speedup", fmt::format("{:.3f}x (95 %: {:.3f} to {:.3f})", r.speedup, r.low, r.high));
  line("found", fmt::format("{} UTC, after {:.1f} s and {} candidates{}", date(r.created), r.tuning_seconds, r.tried,
                            r.complete ? "" : "; a budget ended the search"));
  line("used", fmt::format("{} times, last {} UTC", r.uses, date(r.used)));
  return out;
}

}  // namespace

Result<std::string> run_db(const DbRequest& q) {
  const size_t wanted = q.action == "show" || q.action == "export" || q.action == "import" ? 1 : 0;
  const bool known = wanted == 1 || q.action == "list" || q.action == "gc";
  if (!known) return diagnose(Code::bad_option, "db " + q.action, "is not one of list, show, export, import, gc");
  if (q.operands.size() != wanted)
    return diagnose(Code::bad_option, "db " + q.action,
                    wanted == 0          ? "takes nothing else"
                    : q.action == "show" ? "takes a record: its number, or the beginning of its key"
                                         : "takes a file");
  if (q.path.empty()) return diagnose(Code::bad_option, "db", "there is no database: give one with `--db FILE`");
  const bool writes = q.action == "import" || q.action == "gc";
  std::error_code error;
  std::vector<Record> records;
  std::optional<Database> db;
  if (writes || std::filesystem::exists(q.path, error)) {
    TRY_ASSIGN(db, Database::open(q.path, writes ? Database::Mode::write : Database::Mode::read));
  }
  if (q.action == "import") {
    TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(q.operands[0], 0, -1, int64_t{1} << 30));
    TRY_ASSIGN(records, database::from_text(q.operands[0],
                                            std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
    TRY_ASSIGN(const Database::Merged m, db->merge(records));
    if (q.json)
      return Json{{"schema", "cleave.db/1"}, {"added", m.added}, {"replaced", m.replaced}, {"kept", m.kept}}.dump(2) +
             "\n";
    return fmt::format("{} records added, {} replaced by later ones, {} kept\n", m.added, m.replaced, m.kept);
  }
  if (q.action == "gc") {
    TRY_ASSIGN(const int64_t removed, db->collect(int64_t{q.older_than_days} * 24 * 3600));
    if (q.json) return Json{{"schema", "cleave.db/1"}, {"removed", removed}}.dump(2) + "\n";
    return fmt::format("{} records removed\n", removed);
  }
  if (db) {
    TRY_ASSIGN(records, db->list());
  }
  if (q.action == "export") {
    const std::string text = database::to_text(records);
    if (Diagnostics bad = write_bytes(q.operands[0], std::as_bytes(std::span(text))); !bad.empty()) return bad;
    if (q.json) return Json{{"schema", "cleave.db/1"}, {"exported", records.size()}}.dump(2) + "\n";
    return fmt::format("{} records written to {}\n", records.size(), q.operands[0]);
  }
  if (q.action == "show") {
    std::optional<Record> one;
    if (db) {
      TRY_ASSIGN(one, db->get(q.operands[0]));
    }
    if (!one) return diagnose(Code::bad_option, "db show " + q.operands[0], "there is no such record");
    if (!q.json) return show_text(*one);
    Json j = json_of(*one);
    j["schema"] = "cleave.db/1";
    return j.dump(2) + "\n";
  }
  if (!q.json) return list_text(records);
  Json j = {{"schema", "cleave.db/1"}, {"database", q.path}, {"records", Json::array()}};
  for (const Record& r : records) j["records"].push_back(json_of(r));
  return j.dump(2) + "\n";
}

}  // namespace cleave::driver
