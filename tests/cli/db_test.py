"""The tuning database: what one run found the next one uses, and the verb `db`."""

import json
import os
import signal
import sqlite3
import subprocess
import time

from cleave_cli import CLEAVE, TINY, CliTest, main


class Db(CliTest):
    def setUp(self):
        super().setUp()
        self.tiny = self.file("tiny.graph", TINY)

    def tune(self, *more):
        return self.json("optimize", self.tiny, "--dim", "S=24", "--threads", "1", "--budget", "30s", *more)

    def records(self):
        return self.json("db", "list")["records"]

    def test_the_second_run_takes_what_the_first_one_found(self):
        self.assertEqual(self.records(), [])
        first = self.tune()
        self.assertNotEqual(first["stop"], "remembered")
        records = self.records()
        self.assertEqual(len(records), 1)
        self.assertEqual((records[0]["name"], records[0]["threads"], records[0]["dims"]), ("tiny", 1, "S=24"))
        self.assertEqual(records[0]["unfused"], first["chosen"]["unfused"])
        second = self.tune()
        if not records[0]["complete"]:
            self.skipTest("the budget ended the search on this machine")
        self.assertEqual(second["stop"], "remembered")
        self.assertTrue(any("tuning database" in n for n in second["notes"]), second["notes"])
        self.assertEqual(second["chosen"]["summary"], first["chosen"]["summary"])
        self.assertEqual(second["speedup"], first["speedup"])
        self.assertEqual(self.records()[0]["uses"], 1)
        # Another extent, another number of threads, other options and no database are other problems.
        for more in (["--dim", "S=25"], ["--threads", "2"], ["--topk", "3"], ["--no-cache"], ["--deterministic"]):
            dim = [] if "--dim" in more else ["--dim", "S=24"]
            threads = [] if "--threads" in more else ["--threads", "1"]
            other = self.json("optimize", self.tiny, *dim, *threads, "--budget", "30s", *more)
            self.assertNotEqual(other["stop"], "remembered", more)

    def test_a_record_of_another_environment_is_measured_again(self):
        first = self.tune()
        record = self.records()[0]
        if not record["complete"] or record["unfused"]:
            self.skipTest("nothing was found that could be taken over")
        self.ok("db", "export", "out.jsonl")
        lines = [json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()]
        lines[1]["environment"] = "another machine"
        self.file("other.jsonl", "\n".join(json.dumps(x) for x in lines) + "\n")
        (self.folder / "tunings.db").unlink()
        self.assertIn("1 records added", self.ok("db", "import", "other.jsonl"))
        second = self.tune()
        if second["stop"] == "remembered":
            self.assertEqual(second["chosen"]["summary"], first["chosen"]["summary"])
            self.assertTrue(any("another environment" in n for n in second["notes"]), second["notes"])
        self.assertEqual(len(self.records()), 2)

    def test_records_are_shown_and_carried_over(self):
        self.tune()
        key = self.records()[0]["key"]
        self.assertIn("record 1 of `tiny`", self.ok("db", "show", "1"))
        self.assertIn(key, self.ok("db", "show", key[:8]))
        self.fails(2, "no such record", "db", "show", "17")
        self.assertIn("1 records written", self.ok("db", "export", "kept.jsonl"))
        self.assertIn("0 records added, 0 replaced by later ones, 1 kept", self.ok("db", "import", "kept.jsonl"))
        self.assertIn("1 records added", self.ok("db", "import", "kept.jsonl", "--db", "new/other.db"))
        self.fails(3, "line 1", "db", "import", self.tiny)
        self.assertIn("0 records removed", self.ok("db", "gc"))
        self.assertEqual(len(self.records()), 1)
        time.sleep(1.1)
        self.assertIn("1 records removed", self.ok("db", "gc", "--days", "0"))
        self.assertEqual(self.records(), [])
        self.fails(2, "is not one of", "db", "frobnicate")
        self.fails(2, "takes a file", "db", "export")

    def test_a_database_that_cannot_be_used_is_named_and_left_alone(self):
        path = self.folder / "tunings.db"
        path.write_bytes(b"not a database" * 500)
        before = path.read_bytes()
        self.fails(3, "CLV5011", "db", "list")
        r = self.json("optimize", self.tiny, "--dim", "S=8", "--threads", "1", "--budget", "10s")
        self.assertTrue(any("tuning database was not used" in n for n in r["notes"]), r["notes"])
        self.assertEqual(path.read_bytes(), before)
        path.unlink()
        self.json("optimize", self.tiny, "--dim", "S=8", "--threads", "1", "--budget", "10s")
        db = sqlite3.connect(path)
        db.execute("PRAGMA user_version = 7")
        db.close()
        self.fails(8, "CLV5012", "db", "list")
        self.fails(8, "newer", "db", "gc")

    def test_two_processes_tune_into_one_database(self):
        env = dict(os.environ, CLEAVE_CACHE_DIR=self.cache, CLEAVE_DB=str(self.folder / "tunings.db"))
        runs = [subprocess.Popen([CLEAVE, "optimize", self.tiny, "--dim", f"S={s}", "--threads", "1", "--budget", "20s", "-q"],
                                 env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for s in (9, 10)]
        for run in runs:
            _, errors = run.communicate(timeout=120)
            self.assertEqual(run.returncode, 0, errors)
        self.assertEqual(sorted(r["dims"] for r in self.records()), ["S=10", "S=9"])

    def test_an_interrupt_at_any_moment_leaves_a_whole_database(self):
        path = self.folder / "tunings.db"
        env = dict(os.environ, CLEAVE_CACHE_DIR=self.cache, CLEAVE_DB=str(path))
        self.tune()
        for delay in (0.02, 0.1, 0.3, 0.8):
            run = subprocess.Popen([CLEAVE, "optimize", self.tiny, "--dim", "S=40", "--threads", "1", "--budget", "60s",
                                    "--topk", "2", "-q", "--json"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(delay)
            run.send_signal(signal.SIGINT)
            out, errors = run.communicate(timeout=60)
            # Before the handler is there the process just ends; after it there is a result.
            self.assertIn(run.returncode, (0, 130, -signal.SIGINT), errors)
            if out:
                self.assertEqual(json.loads(out)["status"] == "interrupted", run.returncode == 130, out)
            db = sqlite3.connect(path)
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))
            db.close()
            self.assertIn("S=24", [r["dims"] for r in self.records()])


if __name__ == "__main__":
    main()
