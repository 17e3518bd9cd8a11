#include "database/database.hpp"

#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <functional>

#include "base/codes.hpp"

namespace cleave::database {

namespace {

constexpr int kApplication = 0x434c5631;  // "CLV1" in the header of the file
constexpr int kWaitMilliseconds = 5000;

const char* kColumns =
    "id, key, environment, threads, name, target, dims, machine, summary, program, seconds, unfused_seconds, speedup, "
    "low, "
    "high, tuning_seconds, tried, complete, created, used, uses";

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// One statement; finalised at the end of its life.
class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) { code_ = sqlite3_prepare_v2(db, sql.c_str(), -1, &s_, nullptr); }
  ~Statement() { sqlite3_finalize(s_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text) {
    if (s_) sqlite3_bind_text(s_, ++next_, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
    return *this;
  }
  Statement& bind(int64_t value) {
    if (s_) sqlite3_bind_int64(s_, ++next_, value);
    return *this;
  }
  Statement& bind(double value) {
    if (s_) sqlite3_bind_double(s_, ++next_, value);
    return *this;
  }
  bool row() {  // false at the end, or on an error
    if (code_ != SQLITE_OK && code_ != SQLITE_ROW) return false;
    code_ = sqlite3_step(s_);
    return code_ == SQLITE_ROW;
  }
  bool run() {
    while (row()) {
    }
    return ok();
  }
  bool ok() const { return code_ == SQLITE_OK || code_ == SQLITE_ROW || code_ == SQLITE_DONE; }
  int64_t integer(int i) { return sqlite3_column_int64(s_, i); }
  double real(int i) { return sqlite3_column_double(s_, i); }
  std::string text(int i) {
    const auto* t = reinterpret_cast<const char*>(sqlite3_column_text(s_, i));
    return t ? std::string(t, static_cast<size_t>(sqlite3_column_bytes(s_, i))) : "";
  }

 private:
  sqlite3_stmt* s_ = nullptr;
  int code_ = SQLITE_ERROR;
  int next_ = 0;
};

Record record_of(Statement& s) {
  Record r;
  int i = 0;
  r.id = s.integer(i++);
  r.key = s.text(i++);
  r.environment = s.text(i++);
  r.threads = static_cast<int>(s.integer(i++));
  r.name = s.text(i++);
  r.target = s.text(i++);
  r.dims = s.text(i++);
  r.machine = s.text(i++);
  r.summary = s.text(i++);
  r.program = s.text(i++);
  r.seconds = s.real(i++);
  r.unfused_seconds = s.real(i++);
  r.speedup = s.real(i++);
  r.low = s.real(i++);
  r.high = s.real(i++);
  r.tuning_seconds = s.real(i++);
  r.tried = s.integer(i++);
  r.complete = s.integer(i++) != 0;
  r.created = s.integer(i++);
  r.used = s.integer(i++);
  r.uses = s.integer(i++);
  return r;
}

}  // namespace

struct Database::State {
  std::string path;
  sqlite3* db = nullptr;
  bool writes = false;
  ~State() { sqlite3_close_v2(db); }

  // What the last error means to a user.
  Diagnostics error() const {
    const int code = db ? sqlite3_errcode(db) : SQLITE_NOMEM;
    switch (code & 0xff) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED: return {diagnose(Code::database_locked, path)};
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB: return {diagnose(Code::database_corrupt, path, sqlite3_errmsg(db))};
      default: return {diagnose(Code::database_unusable, path, db ? sqlite3_errmsg(db) : "out of memory")};
    }
  }
  bool exec(const char* sql) { return sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK; }
  std::optional<int64_t> number(const char* sql) {
    Statement s(db, sql);
    if (!s.row()) return std::nullopt;
    return s.integer(0);
  }

  // One transaction around the changes; rolled back when one of them fails.
  Diagnostics change(const std::function<bool()>& changes) {
    if (!exec("BEGIN IMMEDIATE")) return error();
    if (changes() && exec("COMMIT")) return {};
    Diagnostics bad = error();
    exec("ROLLBACK");
    return bad;
  }

  bool put(const Record& r) {
    Statement s(
        db,
        "INSERT OR REPLACE INTO tunings (key, environment, threads, name, target, dims, machine, summary, program, "
        "seconds, unfused_seconds, speedup, low, high, tuning_seconds, tried, complete, created, used, uses) "
        "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
    s.bind(r.key).bind(r.environment).bind(int64_t{r.threads}).bind(r.name).bind(r.target).bind(r.dims);
    s.bind(r.machine).bind(r.summary).bind(r.program).bind(r.seconds).bind(r.unfused_seconds).bind(r.speedup);
    s.bind(r.low)
        .bind(r.high)
        .bind(r.tuning_seconds)
        .bind(r.tried)
        .bind(int64_t{r.complete})
        .bind(r.created)
        .bind(r.used)
        .bind(r.uses);
    return s.run();
  }
};

Database::Database(std::unique_ptr<State> state) : state_(std::move(state)) {}
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;
Database::~Database() = default;

Result<Database> Database::open(const std::string& path, Mode mode) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->writes = mode == Mode::write;
  if (state->writes) {
    std::error_code error;
    const auto folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    if (error) return diagnose(Code::database_unusable, path, error.message());
  }
  const int flags = state->writes ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  if (sqlite3_open_v2(path.c_str(), &state->db, flags | SQLITE_OPEN_FULLMUTEX, nullptr) != SQLITE_OK)
    return state->error();
  sqlite3_extended_result_codes(state->db, 0);
  sqlite3_busy_timeout(state->db, kWaitMilliseconds);
  // SQLite opens what it cannot write for reading; say so before an hour of tuning is lost.
  if (state->writes && sqlite3_db_readonly(state->db, "main") == 1)
    return diagnose(Code::database_unusable, path, "it is read only");
  // In one transaction: between two reads another process may make the tables.
  if (!state->exec("BEGIN")) return state->error();
  const auto version = state->number("PRAGMA user_version"), application = state->number("PRAGMA application_id");
  if (!version || !application) return state->error();
  const auto tables = state->number("SELECT count(*) FROM sqlite_master");
  if (!tables || !state->exec("COMMIT")) return state->error();
  if (*tables > 0 && *application != kApplication)
    return diagnose(Code::database_corrupt, path, "it is another program's database");
  if (*version > kSchema) return diagnose(Code::database_newer, path, *version, kSchema);
  if (*version == kSchema) return Database(std::move(state));
  if (!state->writes) return diagnose(Code::database_unusable, path, "it is empty");
  const Diagnostics bad = state->change([&] {
    // Another process may have been first.
    if (state->number("PRAGMA user_version") == kSchema) return true;
    return state->exec(
        "CREATE TABLE tunings (id INTEGER PRIMARY KEY, key TEXT NOT NULL, environment TEXT NOT NULL, threads INTEGER "
        "NOT "
        "NULL, name TEXT NOT NULL, target TEXT NOT NULL, dims TEXT NOT NULL, machine TEXT NOT NULL, summary TEXT NOT "
        "NULL, "
        "program TEXT NOT NULL, seconds REAL NOT NULL, unfused_seconds REAL NOT NULL, speedup REAL NOT NULL, low REAL "
        "NOT "
        "NULL, high REAL NOT NULL, tuning_seconds REAL NOT NULL, tried INTEGER NOT NULL, complete INTEGER NOT NULL, "
        "created INTEGER NOT NULL, used "
        "INTEGER NOT NULL, uses INTEGER NOT NULL, UNIQUE (key, environment, threads));"
        "PRAGMA application_id = 1129076273;"
        "PRAGMA user_version = 1;");
  });
  if (!bad.empty()) return bad;
  return Database(std::move(state));
}

Result<std::optional<Record>> Database::find(const std::string& key, const std::string& environment, int threads) {
  Statement s(state_->db,
              fmt::format("SELECT {} FROM tunings WHERE key = ? AND threads = ? ORDER BY environment = ? DESC, "
                          "created DESC LIMIT 1",
                          kColumns));
  s.bind(key).bind(int64_t{threads}).bind(environment);
  if (s.row()) return std::optional(record_of(s));
  if (!s.ok()) return state_->error();
  return std::optional<Record>();
}

Diagnostics Database::put(const Record& record) {
  Record r = record;
  r.created = r.created > 0 ? r.created : now();
  r.used = std::max(r.used, r.created);
  return state_->change([&] { return state_->put(r); });
}

Diagnostics Database::mark_used(int64_t id) {
  return state_->change([&] {
    Statement s(state_->db, "UPDATE tunings SET used = ?, uses = uses + 1 WHERE id = ?");
    return s.bind(now()).bind(id).run();
  });
}

Result<std::vector<Record>> Database::list() {
  Statement s(state_->db, fmt::format("SELECT {} FROM tunings ORDER BY created DESC, id DESC", kColumns));
  std::vector<Record> out;
  while (s.row()) out.push_back(record_of(s));
  if (!s.ok()) return state_->error();
  return out;
}

Result<std::optional<Record>> Database::get(const std::string& which) {
  TRY_ASSIGN(const std::vector<Record> all, list());
  for (const Record& r : all)
    if (std::to_string(r.id) == which) return std::optional(r);
  for (const Record& r : all)
    if (which.size() >= 6 && r.key.starts_with(which)) return std::optional(r);
  return std::optional<Record>();
}

Result<int64_t> Database::collect(int64_t older_than_seconds) {
  int64_t removed = 0;
  const Diagnostics bad = state_->change([&] {
    Statement s(state_->db, "DELETE FROM tunings WHERE used < ?");
    if (!s.bind(now() - older_than_seconds).run()) return false;
    removed = sqlite3_changes(state_->db);
    return true;
  });
  if (!bad.empty()) return bad;
  if (!state_->exec("VACUUM")) return state_->error();
  return removed;
}

Result<Database::Merged> Database::merge(const std::vector<Record>& records) {
  Merged m;
  const Diagnostics bad = state_->change([&] {
    for (const Record& r : records) {
      Statement s(state_->db, "SELECT created FROM tunings WHERE key = ? AND environment = ? AND threads = ?");
      s.bind(r.key).bind(r.environment).bind(int64_t{r.threads});
      const bool known = s.row();
      if (!s.ok()) return false;
      if (known && s.integer(0) >= r.created) {
        ++m.kept;
        continue;
      }
      if (!state_->put(r)) return false;
      ++(known ? m.replaced : m.added);
    }
    return true;
  });
  if (!bad.empty()) return bad;
  return m;
}

}  // namespace cleave::database
