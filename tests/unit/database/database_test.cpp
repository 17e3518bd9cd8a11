// The tuning database: what is kept is found again, several processes share a file, and a file that cannot be used is
// named and left alone.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/codes.hpp"
#include "database/database.hpp"

namespace cleave::database {
namespace {

namespace fs = std::filesystem;

class DatabaseTest : public ::testing::Test {
 protected:
  DatabaseTest() {
    std::string name = (fs::temp_directory_path() / "cleave-db-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    path_ = (folder_ / "deep" / "tunings.db").string();
  }
  ~DatabaseTest() override { fs::remove_all(folder_); }

  Database opened(Database::Mode mode = Database::Mode::write) {
    auto db = Database::open(path_, mode);
    EXPECT_TRUE(db.ok()) << (db.ok() ? "" : render(db.errors(), nullptr));
    return std::move(db).value();
  }
  Code refused(Database::Mode mode = Database::Mode::write) {
    auto db = Database::open(path_, mode);
    EXPECT_FALSE(db.ok());
    return db.ok() ? Code::unexpected_token : db.errors().front().code;
  }
  std::string bytes() const {
    std::ifstream f(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(f), {});
  }
  void sql(const char* text) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, text, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }

  fs::path folder_;
  std::string path_;
};

Record record(const std::string& key, const std::string& environment = "here", int threads = 1) {
  Record r;
  r.key = key;
  r.environment = environment;
  r.threads = threads;
  r.name = "attention";
  r.target = "cpu";
  r.dims = "L=7";
  r.machine = "a processor";
  r.summary = "fused: 2 kernels";
  r.program = "0123";
  r.seconds = 0.002;
  r.unfused_seconds = 0.003;
  r.speedup = 1.5;
  r.low = 1.4;
  r.high = 1.6;
  r.tuning_seconds = 12.5;
  r.tried = 24;
  r.complete = true;
  return r;
}

TEST_F(DatabaseTest, WhatIsKeptIsFoundByAnotherRun) {
  {
    Database db = opened();
    EXPECT_TRUE(db.put(record("a")).empty());
    EXPECT_TRUE(db.put(record("b")).empty());
  }
  Database db = opened(Database::Mode::read);
  const auto found = db.find("a", "here", 1).value();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->summary, "fused: 2 kernels");
  EXPECT_EQ(found->speedup, 1.5);
  EXPECT_EQ(found->tried, 24);
  EXPECT_TRUE(found->complete);
  EXPECT_GT(found->created, 1600000000);
  EXPECT_EQ(db.list()->size(), 2u);
  EXPECT_FALSE(*db.find("c", "here", 1));
  EXPECT_FALSE(*db.find("a", "here", 2));
}

TEST_F(DatabaseTest, ARecordOfThisEnvironmentComesBeforeOthers) {
  Database db = opened();
  Record mine = record("a", "here"), other = record("a", "there");
  mine.summary = "mine";
  other.created = 4000000000;
  EXPECT_TRUE(db.put(mine).empty());
  EXPECT_TRUE(db.put(other).empty());
  EXPECT_EQ((*db.find("a", "here", 1))->summary, "mine");
  EXPECT_EQ((*db.find("a", "elsewhere", 1))->environment, "there");
}

TEST_F(DatabaseTest, ALaterRecordReplacesAnEarlierOne) {
  Database db = opened();
  EXPECT_TRUE(db.put(record("a")).empty());
  Record again = record("a");
  again.speedup = 2;
  EXPECT_TRUE(db.put(again).empty());
  ASSERT_EQ(db.list()->size(), 1u);
  const Record now = db.list()->front();
  EXPECT_EQ(now.speedup, 2);
  EXPECT_TRUE(db.mark_used(now.id).empty());
  EXPECT_EQ(db.list()->front().uses, 1);
}

TEST_F(DatabaseTest, ShowFindsByNumberAndByTheBeginningOfAKey) {
  Database db = opened();
  EXPECT_TRUE(db.put(record("abcdef123")).empty());
  EXPECT_TRUE(*db.get("1"));
  EXPECT_TRUE(*db.get("abcdef1"));
  EXPECT_FALSE(*db.get("abcde"));  // too short to mean one record
  EXPECT_FALSE(*db.get("2"));
}

TEST_F(DatabaseTest, CollectingRemovesWhatWasNotUsed) {
  Database db = opened();
  Record old = record("old");
  old.created = old.used = 1000;
  EXPECT_TRUE(db.put(old).empty());
  EXPECT_TRUE(db.put(record("new")).empty());
  EXPECT_EQ(*db.collect(24 * 3600), 1);
  ASSERT_EQ(db.list()->size(), 1u);
  EXPECT_EQ(db.list()->front().key, "new");
}

TEST_F(DatabaseTest, TextCarriesRecordsOver) {
  std::vector<Record> all = {record("a"), record("b", "there", 4)};
  all[0].created = 100;
  all[1].created = 200;
  all[0].name = "quotes \" and \n lines";
  const auto back = from_text("file", to_text(all)).value();
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].name, all[0].name);
  EXPECT_EQ(back[1].threads, 4);
  EXPECT_EQ(back[1].seconds, all[1].seconds);
  Database db = opened();
  EXPECT_EQ(db.merge(back)->added, 2);
  all[0].created = 50;
  all[1].created = 300;
  const auto merged = db.merge(all).value();
  EXPECT_EQ(merged.kept, 1);
  EXPECT_EQ(merged.replaced, 1);
}

TEST_F(DatabaseTest, TextThatIsNoneNamesItsLine) {
  const std::string good = to_text({record("a")});
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("hello"), good + "{", good + "[1]\n", good + "{\"key\": 3}\n",
        std::string("{\"format\": \"cleave.tunings/2\"}\n"), std::string("\xff\xfe")}) {
    const auto r = from_text("file", text);
    ASSERT_FALSE(r.ok()) << text;
    EXPECT_EQ(r.errors().front().code, Code::database_import);
  }
  const auto r = from_text("file", good + "{");
  EXPECT_NE(r.errors().front().message().find("line 3"), std::string::npos) << r.errors().front().message();
}

TEST_F(DatabaseTest, ANewerSchemaIsRefusedAndLeftAlone) {
  {
    EXPECT_TRUE(opened().put(record("a")).empty());
  }
  sql("PRAGMA user_version = 99");
  const std::string before = bytes();
  EXPECT_EQ(refused(), Code::database_newer);
  EXPECT_EQ(refused(Database::Mode::read), Code::database_newer);
  EXPECT_EQ(bytes(), before);
}

TEST_F(DatabaseTest, WhatIsNoDatabaseIsRefusedAndLeftAlone) {
  fs::create_directories(fs::path(path_).parent_path());
  std::ofstream(path_) << std::string(5000, 'x');
  const std::string before = bytes();
  EXPECT_EQ(refused(), Code::database_corrupt);
  EXPECT_EQ(refused(Database::Mode::read), Code::database_corrupt);
  EXPECT_EQ(bytes(), before);
  fs::remove(path_);
  sql("CREATE TABLE other (x)");
  EXPECT_EQ(refused(), Code::database_corrupt);
}

TEST_F(DatabaseTest, ADamagedDatabaseIsNoCrash) {
  {
    Database db = opened();
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(db.put(record(fmt::format("key {}", i))).empty());
  }
  const std::string whole = bytes();
  for (size_t at = 100; at < whole.size(); at += 997) {
    std::string damaged = whole;
    for (size_t i = at; i < std::min(at + 64, damaged.size()); ++i) damaged[i] = static_cast<char>(0xa5);
    std::ofstream(path_, std::ios::binary) << damaged;
    auto db = Database::open(path_, Database::Mode::write);
    if (!db) continue;
    (void)db->list();
    (void)db->put(record("more"));
    (void)db->collect(0);
  }
}

TEST_F(DatabaseTest, WhatCannotBeOpenedIsNamed) {
  fs::create_directories(path_);  // a folder in its place
  EXPECT_EQ(refused(), Code::database_unusable);
  path_ = (folder_ / "missing.db").string();
  EXPECT_EQ(refused(Database::Mode::read), Code::database_unusable);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(DatabaseTest, AReadOnlyDatabaseIsReadAndNotWritten) {
  {
    EXPECT_TRUE(opened().put(record("a")).empty());
  }
  const std::string before = bytes();
  for (const fs::path& p : {fs::path(path_), fs::path(path_).parent_path(), folder_})
    fs::permissions(p, fs::perms::owner_write | fs::perms::group_write | fs::perms::others_write,
                    fs::perm_options::remove);
  for (const fs::path& p : {fs::path(path_), fs::path(path_).parent_path(), folder_})
    fs::permissions(p, fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec,
                    fs::perm_options::add);
  // Permissions do not bind root: then somebody else looks.
  constexpr uid_t kNobody = 65534;
  const bool root = geteuid() == 0;
  if (root) ASSERT_EQ(seteuid(kNobody), 0);
  EXPECT_EQ(refused(), Code::database_unusable);
  EXPECT_TRUE(*opened(Database::Mode::read).find("a", "here", 1));
  if (root) ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(bytes(), before);
  fs::permissions(fs::path(path_).parent_path(), fs::perms::owner_all, fs::perm_options::add);
  fs::permissions(folder_, fs::perms::owner_all, fs::perm_options::add);
}

TEST_F(DatabaseTest, AWriteThroughAReaderIsRefused) {
  {
    EXPECT_TRUE(opened().put(record("a")).empty());
  }
  Database db = opened(Database::Mode::read);
  const Diagnostics bad = db.put(record("b"));
  ASSERT_FALSE(bad.empty());
  EXPECT_EQ(bad.front().code, Code::database_unusable);
}

TEST_F(DatabaseTest, ALockedDatabaseIsNamed) {
  {
    EXPECT_TRUE(opened().put(record("a")).empty());
  }
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_EQ(refused(Database::Mode::read), Code::database_locked);
  sqlite3_close(other);
}

TEST_F(DatabaseTest, TwoProcessesKeepIntoOneFile) {
  std::vector<pid_t> children;
  for (int p = 0; p < 2; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int failures = 0;
      for (int i = 0; i < 40; ++i) {
        auto db = Database::open(path_, Database::Mode::write);
        failures += !db || !db->put(record(fmt::format("{}-{}", p, i))).empty();
      }
      _exit(failures > 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(opened().list()->size(), 80u);
}

TEST_F(DatabaseTest, AnEndAtAnyMomentLeavesItWhole) {
  {
    EXPECT_TRUE(opened().put(record("first")).empty());
  }
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto db = Database::open(path_, Database::Mode::write);
      for (int i = 0; db; ++i) (void)db->put(record(fmt::format("{}-{}", round, i)));
      _exit(1);
    }
    usleep(30000 + 7000 * static_cast<useconds_t>(round));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    Database db = opened();
    EXPECT_TRUE(*db.find("first", "here", 1));
    EXPECT_TRUE(db.put(record(fmt::format("after {}", round))).empty());
  }
}

}  // namespace
}  // namespace cleave::database
