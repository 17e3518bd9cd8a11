// The pipeline's use of the tuning database (src/database), and the verb `db`.
#pragma once

#include <string>
#include <vector>

#include "database/database.hpp"
#include "driver/pipeline.hpp"

namespace cleave::driver {

// What the database knows of a compilation that has been scheduled.
struct Recall {
  std::string key, environment;
  std::optional<tune::Remembered> remembered;
  int64_t record = 0;
};
// Never fails: a database that cannot be used is a note of the result, and tuning goes on without it.
Recall recall(Compilation& compilation);
// Keeps what was tuned; notes what came from the database.
void remember(Compilation& compilation, const Recall& known);

// `cleave db`. Errors: the database's.
struct DbRequest {
  std::string action;                 // list, show, export, import, gc
  std::vector<std::string> operands;  // show: a record; export, import: a file
  std::string path;                   // of the database
  int older_than_days = 180;          // gc
  bool json = false;
};
Result<std::string> run_db(const DbRequest& request);  // what is printed

}  // namespace cleave::driver
