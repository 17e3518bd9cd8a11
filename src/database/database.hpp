// The tuning database: what tuning found, kept from one run to the next.
//
// One SQLite file. A record says which tile program won for a problem (the graph with its constants, dtypes and
// extents, and the target: `key`), on how many threads, in which environment (processor, ceilings, compiler, this
// build), and what it was measured against. A record of another environment is a hint, to be measured again; one of the
// same environment is as good as measuring. Several processes may use one file: each call is one transaction, and waits
// a few seconds for others. The file carries the version of its schema; a newer one is refused and left alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"

namespace cleave::database {

struct Record {
  int64_t id = 0;
  std::string key;          // hash of the problem
  std::string environment;  // hash of the machine, the compiler and this build
  int threads = 1;
  std::string name, target, dims, machine;  // for people
  std::string summary;                      // of the schedule that won
  std::string program;                      // hash of its tile program; empty: the unfused schedule won
  double seconds = 0, unfused_seconds = 0;
  double speedup = 1, low = 1, high = 1;  // over the unfused schedule, with its 95 % interval
  double tuning_seconds = 0;              // how long it took to find
  int64_t tried = 0;                      // candidates that were tried for it
  bool complete = false;                  // the search ended by itself, no budget ended it
  int64_t created = 0, used = 0;          // seconds since 1970
  int64_t uses = 0;
};

// The schema that this version writes, and reads.
inline constexpr int kSchema = 1;

class Database {
 public:
  enum class Mode { read, write };
  // Write: makes the file, and the folder that it is to lie in, when they are missing. Errors: database_newer,
  // database_corrupt, database_unusable (cannot be opened, read only, full), database_locked.
  static Result<Database> open(const std::string& path, Mode mode);
  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;
  ~Database();

  // What is known of a problem on that many threads: the record of this environment, else the latest of another one.
  Result<std::optional<Record>> find(const std::string& key, const std::string& environment, int threads);
  // Adds a record, or replaces the one of its key, environment and threads.
  Diagnostics put(const Record& record);
  Diagnostics mark_used(int64_t id);
  // The latest first.
  Result<std::vector<Record>> list();
  // By id, or by the beginning of the key.
  Result<std::optional<Record>> get(const std::string& which);
  // Removes records that were not used for that long, and those of a problem beyond the latest of each environment;
  // returns how many, and gives the room back.
  Result<int64_t> collect(int64_t older_than_seconds);
  // Takes records over; of two for one key, environment and threads the later one stays. All or nothing.
  struct Merged {
    int64_t added = 0, replaced = 0, kept = 0;
  };
  Result<Merged> merge(const std::vector<Record>& records);

 private:
  struct State;
  explicit Database(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// One JSON object a line, the first one saying the format. Import accepts what export writes, from this version or an
// older one; errors: database_import, with the line.
std::string to_text(const std::vector<Record>& records);
Result<std::vector<Record>> from_text(const std::string& name, const std::string& text);

}  // namespace cleave::database
