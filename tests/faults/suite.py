"""Rows that are tests of `tests/promises`: cargo's run has their short forms, this the full ones.

A test reads PETSTORE_ROUNDS and PETSTORE_SEED (`tests/support/trial.rs`), prints how far it is while it runs, and
last what it measured. It passes where the promise was kept.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import NamedTuple

from cluster.petstore import ROOT
from cluster.processes import Failed

from .trial import Result

CARGO = ["cargo", "test", "--locked", "--release", "--test"]
EXACTLY = ["--exact", "--nocapture"]
# So that a run that ends in a failure says why, and nothing else does.
LAST_WORDS = 15

# How many seconds those have for their end that a test has started.
LAST_WAIT = 20


class Suite(NamedTuple):
    """One row: the test's name, or several whose figures stand side by side."""

    NUMBER: int
    PROMISE: str
    FIGURE: str
    CONTROL: str
    ROUNDS: int
    tests: tuple
    # Tests of their own that must pass too, where the control is not within the tests above.
    controls: tuple = ()
    BINARY: str = "promises"

    @property
    def test(self):
        """Where it is, for the page."""
        return ", ".join(f"`tests/{self.BINARY}` {name}" for name in self.tests)

    def run(self, trial):
        build(self.BINARY)
        measured, failures = [], []
        for name in self.tests:
            figure, failure = run_test(trial, self, name)
            measured.append(figure)
            failures += failure or ([] if figure else [f"{name} did not say what it measured"])
        for name in self.controls:
            failures += run_test(trial, self, name)[1]
        return Result("; ".join(filter(None, measured)) or "nothing", failures)


ROWS = (
    Suite(
        NUMBER=1,
        PROMISE="an acknowledged write survives a crash, and none is acknowledged into files that are gone",
        FIGURE="200 rounds of `kill -9` under 32 clients: animals and messages in the embedded database, 0 lost, 0 doubled by "
        "what is sent again with its idempotency key, `integrity_check` ok; orders on both databases, 0 lost, every animal "
        "as its orders say. In 200 rounds `petstore.db`, its log, its index or all three are removed, one is replaced, "
        "or the data directory is renamed, under 32 clients and idle: no write sent afterwards is acknowledged, every "
        "acknowledged one is in the original files, clients get 503, not ready, exit status 1 within 5 s; a log whose "
        "database was moved away is kept",
        CONTROL="two acknowledged rows that are deleted, and one that nobody sent, are noticed; what is sent again without "
        "its key is there twice; an order that is deleted and an animal that is freed are noticed; other files in the folder "
        "are ignored",
        ROUNDS=200,
        tests=(
            "crash::an_acknowledged_write_survives_kill_9",
            "orders::orders_and_animals_agree_after_kill_9",
            "orders::orders_and_animals_agree_after_kill_9_on_postgresql_too",
            "files_gone::nothing_is_acknowledged_into_files_that_are_gone",
        ),
    ),
    Suite(
        NUMBER=2,
        PROMISE="the sync comes before the answer",
        FIGURE="10,000 answers in traces of system calls, 0 out of order",
        CONTROL="where strace lets syncs report success without carrying them out, every answer is out of order",
        ROUNDS=10_000,
        tests=("sync_order::the_sync_comes_before_the_answer",),
    ),
    Suite(
        NUMBER=3,
        PROMISE="a power loss takes nothing that was acknowledged",
        FIGURE="1,000 images of what the disk may hold (unsynced writes dropped or torn), 0 acknowledged lost",
        CONTROL="where syncs report success without being carried out, images lose acknowledged writes",
        ROUNDS=1_000,
        tests=("power_loss::a_power_loss_takes_nothing_that_was_acknowledged",),
    ),
    Suite(
        NUMBER=6,
        PROMISE="one effect for each idempotency key",
        FIGURE="500 keys, for animals, messages, orders and their approval by turns, 20 requests at once with each, over 3 "
        "processes and in one, whose system clock jumps by days meanwhile: 1 row each",
        CONTROL="without the key, each request has its effect",
        ROUNDS=500,
        tests=(
            "once::requests_at_once_over_three_processes_have_one_effect_for_each_key",
            "once::requests_at_once_have_one_effect_for_each_key_in_the_embedded_database",
        ),
    ),
    Suite(
        NUMBER=7,
        PROMISE="the misuse of an idempotency key is refused",
        FIGURE="1,000 cases (another body, another account, another operation, after a restart, after expiry) as decided",
        CONTROL="with its record spoilt, the same request is refused",
        ROUNDS=1000,
        tests=(
            "misuse::a_key_is_answered_as_decided_on_postgresql",
            "misuse::a_key_is_answered_as_decided_in_the_embedded_database",
        ),
    ),
    Suite(
        NUMBER=8,
        PROMISE="a client that goes away harms nothing",
        FIGURE="5,000 resets at a random byte of an animal, a message, an order or its approval, each sent again: one effect "
        "each, no connection left",
        CONTROL="without the key, what is sent again is done again",
        ROUNDS=5000,
        tests=(
            "gone_client::a_request_that_was_cut_off_anywhere_is_carried_out_once_when_it_is_sent_again",
            "gone_client::a_request_that_was_cut_off_anywhere_is_carried_out_once_on_postgresql_too",
        ),
    ),
    Suite(
        NUMBER=9,
        PROMISE="accounts are apart",
        FIGURE="every page, form and operation of the API with another account's things, both databases, 0 leaks",
        CONTROL="whose they are finds all of them by the same way",
        ROUNDS=1,
        tests=("apart::nothing_of_another_account_is_seen_or_touched",),
    ),
    Suite(
        NUMBER=10,
        PROMISE="no way around the key",
        FIGURE="every operation of the document; missing, garbage, revoked, expired, of the other deployment, doubled; "
        "401 before anything else",
        CONTROL="with a key, none of the operations answers 401",
        ROUNDS=1,
        tests=("without_key::every_operation_asks_for_a_key_before_anything_else",),
    ),
    Suite(
        NUMBER=11,
        PROMISE="revoking is prompt",
        FIGURE="100 trials, refused by all of 3 processes within 1 s",
        CONTROL="a key that is revoked without telling anybody goes on being taken",
        ROUNDS=100,
        tests=("revoking::a_revoked_key_is_refused_in_three_processes_within_a_second",),
    ),
    Suite(
        NUMBER=12,
        PROMISE="a sync error is fatal, not ignored",
        FIGURE="50 syncs that fail (EIO), 0 false 201, not ready, exit status 1",
        CONTROL="where ten syncs report success without being carried out, answers without a sync are found",
        ROUNDS=50,
        tests=("sync_error::a_failed_sync_ends_the_process",),
    ),
    Suite(
        NUMBER=13,
        PROMISE="a full disk is survived",
        FIGURE="20 times a small disk is full and has room again: writes 503, reads 200, recovers alone",
        CONTROL="while there is room nothing is refused; rows that are deleted or added are noticed",
        ROUNDS=20,
        tests=("full_disk::a_full_disk_refuses_writes_and_answers_reads",),
    ),
    Suite(
        NUMBER=14,
        PROMISE="a read-only disk is read",
        FIGURE="started on one, and when it becomes one, 20 times each: writes 503, reads 200",
        CONTROL="while it is writable nothing is refused; rows that are deleted or added are noticed",
        ROUNDS=20,
        tests=("read_only_disk::a_read_only_disk_is_read", "read_only_disk::a_disk_that_becomes_read_only_is_read"),
    ),
    Suite(
        NUMBER=15,
        PROMISE="the database gone",
        FIGURE="50 cycles each: 503 with `Retry-After` within 2 s, back within 5 s, `/livez` 200, `/readyz` 503",
        CONTROL="nothing is refused before the database goes; a client without deadlines hangs on the silent network",
        ROUNDS=50,
        tests=(
            "database_gone::a_server_that_stops_is_503_and_comes_back",
            "database_gone::a_network_that_goes_silent_is_503_and_comes_back",
        ),
    ),
    Suite(
        NUMBER=16,
        PROMISE="a demoted primary is let go",
        FIGURE="20 switch-overs, 0 lost, writes back within 5 s of the promotion, no restart",
        CONTROL="who holds on to the old server goes on getting answers, without what was written since",
        ROUNDS=20,
        tests=("demoted::a_demoted_primary_is_let_go_for_the_promoted_standby",),
    ),
    Suite(
        NUMBER=17,
        PROMISE="load is held",
        FIGURE="80 % of the measured peak for 10 minutes, 0 errors, memory within 10 %. The peak is the highest rate at which "
        "256 clients that ask at fixed moments ask 99 % of what is due, the answer before being there",
        CONTROL="at a higher rate the same clients fall behind",
        ROUNDS=600,
        tests=("overload::four_fifths_of_the_peak_are_held",),
    ),
    Suite(
        NUMBER=18,
        PROMISE="overload is shed, not collapsed under",
        FIGURE="three times the peak of as many connections, wanted by clients each of which waits for its answer before "
        "it asks again: goodput at least 80 % of it, refusals within 100 ms (where clients come back without waiting as "
        "`Retry-After` says, they wait longer), normal within 5 s after",
        CONTROL="with fewer connections than clients, those too many must have been refused",
        ROUNDS=20,
        tests=(
            "overload::three_times_the_peak_of_lists_is_shed",
            "overload::three_times_the_peak_of_creates_is_shed",
            "overload::more_clients_than_connections_are_turned_away",
            "overload::clients_that_do_not_wait_take_nothing_from_the_others",
        ),
    ),
    Suite(
        NUMBER=19,
        PROMISE="slow clients are bounded",
        FIGURE="5,000 sockets that are silent, slow with head or body, or don't read: closed in time, others' p99 at "
        "most twice as long",
        CONTROL="none of them is closed before its time",
        ROUNDS=5_000,
        tests=("slow::others_do_not_feel_five_thousand_of_them",),
    ),
    Suite(
        NUMBER=20,
        PROMISE="running out of file descriptors does no lasting harm",
        FIGURE="`ulimit -n 128`, 500 connections: accepts again within 2 s, no busy loop",
        CONTROL="told to take more connections than it has descriptors for, it does run out of them",
        ROUNDS=1,
        tests=("descriptors::five_hundred_clients_of_a_hundred_descriptors_do_no_lasting_harm",),
    ),
    Suite(
        NUMBER=21,
        PROMISE="malformed HTTP makes nobody read what was meant for another",
        FIGURE="300 cases, bare line feeds in every place of a chunked body among them: each is refused, or answered and "
        "then its connection is closed; 0 desynchronised",
        CONTROL="a server that believes the first `Content-Length` is caught by the same cases",
        ROUNDS=6_000,
        tests=("malformed::no_request_is_found_inside_another",),
        controls=("malformed::a_server_that_can_be_fooled_is_found_out",),
    ),
    Suite(
        NUMBER=22,
        PROMISE="bad JSON is never a 5xx",
        FIGURE="300 cases, the same answer on both databases",
        CONTROL="the databases alone do not agree about NUL",
        ROUNDS=7_000,
        tests=("odd_json::odd_json_is_never_a_5xx_and_both_databases_answer_the_same",),
        controls=("odd_json::the_databases_alone_would_answer_differently",),
    ),
    Suite(
        NUMBER=23,
        PROMISE="the contract holds",
        FIGURE="Schemathesis, all checks, against the document that is served, both databases: 3 seeds x 500 examples of "
        "each operation, 0 failures",
        CONTROL="against a document in which an id is a text, the same run fails",
        ROUNDS=500,
        tests=(
            "schemathesis::the_doors_keep_to_the_document",
            "schemathesis::the_doors_keep_to_the_document_on_postgresql_too",
        ),
        controls=("schemathesis::a_document_that_says_something_else_is_found_out",),
        BINARY="contract",
    ),
    Suite(
        NUMBER=24,
        PROMISE="parsers hold",
        FIGURE="10 million inputs each for key, query, body, cursor and configuration, 0 crashes",
        CONTROL="a parser that cuts text at a byte is found out",
        ROUNDS=10_000_000,
        tests=(
            "fuzz::no_key_crashes_its_parser",
            "fuzz::no_query_crashes_its_parser",
            "fuzz::no_body_crashes_its_parser",
            "fuzz::no_cursor_crashes_its_parser",
            "fuzz::no_configuration_crashes_its_parser",
        ),
        controls=("fuzz::a_parser_that_can_crash_is_found_out",),
    ),
    Suite(
        NUMBER=25,
        PROMISE="a flood of sign-ins is contained",
        FIGURE="200 clients at once, who come back as `Retry-After` says, while the API is loaded: bounded hashes at "
        "once, the API's p99 at most twice as long (median of rounds, each beside one without them)",
        CONTROL="some of the flood must have been hashed, and some refused",
        ROUNDS=11,
        tests=("sign_ins::two_hundred_at_once_are_contained",),
    ),
    Suite(
        NUMBER=26,
        PROMISE="signing in reveals no account: known against unknown address",
        FIGURE="the same answers, medians within 5 %",
        CONTROL="what is answered without a hash shows in its time; each known address is one that its owner signs in with",
        ROUNDS=500,
        tests=("guessing::sign_in_answers_known_and_unknown_addresses_alike",),
    ),
    Suite(
        NUMBER=27,
        PROMISE="no cross-site request",
        FIGURE="every form with every wrong pair of `Origin` and `Sec-Fetch-Site`, in every type: all refused; GET "
        "changes nothing",
        CONTROL="the same forms, sent from our own pages, do something (`tests/console/forms.rs`, in the suite)",
        ROUNDS=1,
        tests=(
            "cross_site::every_form_of_another_site_is_refused_and_does_nothing",
            "cross_site::looking_at_pages_changes_nothing",
        ),
        BINARY="console",
    ),
    Suite(
        NUMBER=28,
        PROMISE="secrets never leak",
        FIGURE="keys, passwords and a session searched for in the log at trace level, database (both), WAL and panic text, "
        "0 hits",
        CONTROL="what is no secret is found in each of these places",
        ROUNDS=1,
        tests=(
            "secrets::no_secret_is_in_the_log_the_database_or_beside_it",
            "secrets::no_secret_is_in_postgresql",
        ),
    ),
    Suite(
        NUMBER=29,
        PROMISE="a clean drain",
        FIGURE="100 restarts under load behind HAProxy, which reads `/readyz`: 0 failed requests; with the configuration "
        "of `scripts/cluster`, processes that are not ready answer their requests in flight",
        CONTROL="processes that just vanish fail requests",
        ROUNDS=100,
        tests=("drain::restarts_behind_a_proxy_drop_no_request", "drain::requests_in_flight_outlive_readiness"),
        controls=("drain::a_process_that_vanishes_fails_requests",),
    ),
    Suite(
        NUMBER=30,
        PROMISE="migrations",
        FIGURE="a program beside a schema that is newer than it; `kill -9` in each step (PostgreSQL) and at any moment (both); "
        "100 each, always opens",
        CONTROL="kills hit before and after steps, and find each step begun; a schema that says no is refused",
        ROUNDS=100,
        tests=(
            "migrations::a_process_that_is_killed_within_a_step_leaves_nothing_of_it",
            "migrations::a_process_that_is_killed_at_any_moment_leaves_a_database_that_opens",
            "migrations::a_process_that_is_killed_at_any_moment_leaves_a_folder_that_opens",
            "migrations::a_program_works_beside_a_newer_schema_until_that_says_no",
        ),
    ),
    Suite(
        NUMBER=31,
        PROMISE="a live backup restores, and a failed restore leaves the old database or the new one, whole",
        FIGURE="50 backups under writes and 50 killed in the middle: every acknowledged write before it present, no half "
        "file. Every `unlink`, `rename`, `fsync`, `fdatasync`, `ftruncate` and `pwrite64` of a restore failed (EIO, EPERM, "
        "EROFS) or killed, over a database with a log, with a hot journal, without its file, with an empty one, and "
        "broken: afterwards the old or the new database, `integrity_check` ok; exit status 0 only with the new one; no "
        "unfinished file after the next start; a second restore after a kill succeeds",
        CONTROL="a copy of the database's file without its log lacks what was acknowledged last; a new database beside "
        "the old one's journal is noticed",
        ROUNDS=50,
        tests=(
            "backup::a_backup_under_writes_restores_and_a_killed_one_leaves_no_half",
            "restore_faults::restore_leaves_the_old_or_the_new_database_whole",
        ),
    ),
    Suite(
        NUMBER=32,
        PROMISE="a clock that jumps prolongs nothing and ends nothing early",
        FIGURE="500 jumps of an hour or a day, forth and back, while the service runs: keys, sessions and idempotency records "
        "expire by true time, limits sane, ids unique; a clock before 1970 breaks no connection and is refused at start",
        CONTROL="the system clock would have decided otherwise",
        ROUNDS=500,
        tests=(
            "clock_jumps::a_clock_that_jumps_prolongs_nothing",
            "clock_jumps::a_clock_that_jumps_keeps_answers_for_their_day",
            "clock_jumps::a_clock_that_jumps_leaves_rate_limits_as_they_are",
            "clock_jumps::a_clock_that_jumps_keeps_nobody_out",
            "clock_jumps::built_program_follows_true_time_when_its_clock_jumps",
            "clock_jumps::clock_before_1970_breaks_no_connection",
            "clock_jumps::service_refuses_to_start_before_1970",
        ),
    ),
    Suite(
        NUMBER=33,
        PROMISE="rate limits are exact and bounded",
        FIGURE="± 1 request, at once and over time; no forged address counts; a million accounts in bounded memory",
        CONTROL="a second process lets as many through again; a proxy that is trusted is believed each forged address; "
        "until two windows have passed, all accounts are remembered",
        ROUNDS=100,
        tests=(
            "rate_limit::at_once_an_account_is_let_through_as_often_as_its_limit_says",
            "rate_limit::over_time_an_account_is_let_through_as_often_as_its_limit_says",
            "rate_limit::a_forged_forwarded_address_gets_nobody_more_attempts",
            "rate_limit::a_million_accounts_take_little_memory_and_none_for_long",
        ),
    ),
    Suite(
        NUMBER=34,
        PROMISE="the writer's death is loud",
        FIGURE="50 panics within a write: those who wait get 503, not ready, exit status 1",
        CONTROL="after a write that fails without a panic the service goes on",
        ROUNDS=50,
        tests=("dead_writer::a_panic_of_the_writer_ends_the_process",),
    ),
    Suite(
        NUMBER=35,
        PROMISE="the write-ahead log is bounded, and exports do not hold it",
        FIGURE="a reader of another connection that never ends, under batches of the longest messages: below 1 GiB (no batch "
        "begins beyond 245,000 pages; then writes get 503 until the reader ends). Beside `pets export` and `messages "
        "export` into pipes that nobody reads: twice as much is written and no write is refused; each export, read at "
        "last, has every row that was there throughout exactly once",
        CONTROL="without a limit, the same writes under the same reader make the log larger",
        ROUNDS=245_000,
        tests=(
            "wal_bound::a_reader_that_never_ends_does_not_fill_the_disk",
            "wal_bound::stalled_exports_do_not_hold_writes_up",
        ),
    ),
    Suite(
        NUMBER=36,
        PROMISE="every message that was answered reaches the stream",
        FIGURE="100 x 1,000 messages, over two processes, with relay, broker and database killed at random: 0 missing",
        CONTROL="messages that are marked as sent before the broker has acknowledged them are missing",
        ROUNDS=100,
        tests=(
            "outbox::every_message_that_was_answered_reaches_the_stream",
            "outbox::every_message_that_was_answered_reaches_the_stream_from_postgresql",
        ),
    ),
    Suite(
        NUMBER=44,
        PROMISE="a follower of `after` misses nothing",
        FIGURE="100 rounds over three processes, one killed and one stopped for 1.4 s in each, animals and orders with and "
        "without idempotency keys: every acknowledged id received exactly once, in order; also in the embedded database",
        CONTROL="an id that becomes visible after a greater one is missed",
        ROUNDS=100,
        tests=(
            "followers::followers_miss_nothing_across_three_processes",
            "followers::followers_miss_nothing_in_the_embedded_database",
        ),
    ),
    Suite(
        NUMBER=45,
        PROMISE="a process that hangs delays other processes for a bounded time",
        FIGURE="100 processes stopped in the middle of a batch on PostgreSQL, of orders and of animals: writes of others "
        "succeed within 1 s",
        CONTROL="while the lock is held for longer than a write waits, writes are refused, and no abandoned write waits in "
        "the server",
        ROUNDS=100,
        tests=(
            "hung_process::hung_batch_of_orders_delays_others_within_the_bound",
            "hung_process::hung_batch_of_animals_delays_others_within_the_bound",
        ),
        controls=("hung_process::abandoned_writes_do_not_wait_on_in_the_server",),
    ),
)


def build(binary):
    """Before the run, so that what the compiler says is not taken for the test's."""
    if not shutil.which("cargo"):
        raise Failed("cargo is missing: install Rust")
    if subprocess.run([*CARGO, binary, "--no-run"], cwd=ROOT).returncode:
        raise Failed(f"tests/{binary} does not build")


def run_test(trial, row, name):
    """What it measured, and why it failed, where it did. Its log is kept in target."""
    rounds = trial.rounds(row.ROUNDS)
    environment = os.environ | {"PETSTORE_ROUNDS": str(rounds), "PETSTORE_SEED": str(trial.seed)}
    log_path = ROOT / "target" / f"promise-{row.NUMBER}-{name.rpartition('::')[2]}.log"
    log_path.parent.mkdir(exist_ok=True)
    measured, ran, failed = "", False, False
    with log_path.open("w") as log, session([*CARGO, row.BINARY, name, "--", *EXACTLY], environment, log) as test:
        for line in test.stdout:
            log.write(line)
            log.flush()
            # The runner may have begun the line with the test's name.
            _, told, figure = line.partition("measured: ")
            if told:
                measured = figure.strip()
            # From here on the runner repeats itself.
            failed = failed or line == "failures:\n"
            if line.strip() and not told and not failed:
                trial.say(line.strip())
            ran = ran or "1 passed" in line or "1 failed" in line
        status = test.wait()
    if not ran:
        return measured, [f"there is no test {name}, or it did not come to its end: see {log_path.relative_to(ROOT)}"]
    if status:
        return measured, [f"{why_it_failed(log_path.read_text(errors='replace'))} (the log: {log_path.relative_to(ROOT)})"]
    return measured, []


@contextlib.contextmanager
def session(command, environment, log):
    """A process and all that it starts, none of which outlives this."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        errors="replace", start_new_session=True,
    )
    try:
        yield process
    finally:
        # Who keeps a server for the test takes it away when the test has ended, and is killed only if that takes too long.
        until = time.monotonic() + LAST_WAIT
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            while time.monotonic() < until:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def why_it_failed(log):
    """The message of the panic that ended the test, in one line."""
    found = re.search(r"^thread '.*' .*panicked at .*:\n((?:.*\n)*?)(?=note: |stack backtrace|\n|test |$)", log, re.M)
    words = found[1].splitlines() if found and found[1].strip() else log.splitlines()[-LAST_WORDS:]
    return " ".join(" ".join(words).split())
