"""Rows that are tests in Rust. `scripts/verify` runs their full form, `scripts/verify --short` the short one.

A test reads PETSTORE_ROUNDS and PETSTORE_SEED (`tests/testkit/src/trial.rs`), prints its progress, and finally its
measurement. It passes if the promise is kept.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from cluster.petstore import ROOT
from cluster.processes import Failed

from .trial import Result

# The tests of both packages and the program that they run, in one selection, so that nothing is compiled twice.
CARGO = ["--locked", "--package=petstore", "--package=petstore-verification", "--features=petstore/otlp"]
EXACTLY = ["--exact", "--nocapture"]
# Lines of the log to quote if a failed test has no panic message.
QUOTED_LINES = 15

# Seconds that the processes of a test have to end.
END_TIMEOUT = 20


class Suite(NamedTuple):
    """One row, measured by one or more tests."""

    NUMBER: int
    PROMISE: str
    FAULT: str
    FIGURE: str
    CONTROL: str
    HEADLINE: tuple
    ROUNDS: int
    tests: tuple
    # Controls that are tests of their own.
    controls: tuple = ()
    BINARY: str = "promises"
    # True if the tests run at the same time.
    CONCURRENT: bool = False

    def run(self, trial):
        build(self.BINARY, "--release")
        measured, failures = [], []
        for names in [self.tests] if self.CONCURRENT else [[name] for name in self.tests]:
            figures, failure = run_tests(trial, self, names)
            measured += figures
            missing = [] if len(figures) == len(names) else [f"{' or '.join(names)} printed no measurement"]
            failures += failure or missing
        for name in self.controls:
            failures += run_tests(trial, self, [name])[1]
        return Result("; ".join(measured) or "nothing", failures)


ROWS = (
    Suite(
        NUMBER=1,
        PROMISE="an acknowledged write survives a crash; no write is acknowledged into files that are gone",
        FAULT="`kill -9` under 32 clients; database files removed, replaced or moved",
        FIGURE="200 rounds of `kill -9` under 32 clients: 0 lost, 0 duplicated after retries with idempotency keys, "
        "`integrity_check` ok. Orders on both databases: 0 lost, every animal in the state its orders imply. 200 "
        "rounds that remove, replace or move `petstore.db`, its log or its index, or rename the data directory: "
        "no later write is acknowledged, the original files hold every acknowledged one, 503, not ready, "
        "exit status 1 within 5 s; a log whose database was moved away is kept",
        CONTROL="two deleted rows and one foreign row are noticed; a retry without its key creates a duplicate; a deleted "
        "order and a freed animal are noticed; other files in the folder are ignored",
        HEADLINE=(r"(\d+) acknowledged.*?(\d+) lost, (\d+) doubled", "{1} of {0} lost, {2} duplicated"),
        ROUNDS=200,
        tests=(
            "crash::acknowledged_write_survives_kill_9",
            "orders::orders_and_animals_agree_after_kill_9",
            "orders::orders_and_animals_agree_after_kill_9_on_postgresql",
            "files_gone::nothing_is_acknowledged_into_removed_files",
        ),
    ),
    Suite(
        NUMBER=2,
        PROMISE="the sync precedes the response",
        FAULT="system-call traces of responses under load",
        FIGURE="10,000 responses in system-call traces, 0 before their sync",
        CONTROL="if strace makes syncs report success without doing them, every response is out of order",
        HEADLINE=(r"(\d+) answers in \d+ traces, (\d+) out of order", "{1} of {0} responses out of order"),
        ROUNDS=10_000,
        tests=("sync_order::sync_precedes_the_response",),
    ),
    Suite(
        NUMBER=3,
        PROMISE="a power loss destroys no acknowledged write",
        FAULT="disk images with unsynced writes dropped or torn",
        FIGURE="1,000 images of what the disk may hold (unsynced writes dropped or torn), 0 acknowledged writes lost",
        CONTROL="if syncs report success without being done, images lose acknowledged writes",
        HEADLINE=(r"(\d+) images.*?(\d+) acknowledged lost", "{1} lost in {0} disk images"),
        ROUNDS=1_000,
        tests=("power_loss::power_loss_loses_no_acknowledged_write",),
    ),
    Suite(
        NUMBER=6,
        PROMISE="an idempotency key has one effect",
        FAULT="20 concurrent requests per key, 3 processes, jumping clocks",
        FIGURE="500 keys, 20 concurrent requests each, for animals, messages, orders and approvals, over 3 processes and "
        "over 1, while the system clock jumps by days: 1 row each",
        CONTROL="without the key, each request has its effect",
        HEADLINE=(r"(\d+) keys, (\d+) requests at once over (\d+) processes", "1 row for each of {0} keys × {1} requests"),
        ROUNDS=500,
        tests=(
            "once::concurrent_requests_execute_once_over_three_processes",
            "once::concurrent_requests_execute_once_in_the_embedded_database",
        ),
    ),
    Suite(
        NUMBER=7,
        PROMISE="misuse of an idempotency key is rejected",
        FAULT="another body, account or operation; restarts; expiry",
        FIGURE="1,000 cases (another body, account or operation, after a restart, after expiry) as documented",
        CONTROL="with a corrupted record, the same request is rejected",
        HEADLINE=(r"(\d+) cases as decided", "{0} of {0} cases as documented"),
        ROUNDS=1000,
        tests=(
            "misuse::key_misuse_is_rejected_on_postgresql",
            "misuse::key_misuse_is_rejected_in_the_embedded_database",
        ),
    ),
    Suite(
        NUMBER=8,
        PROMISE="a disconnected client does no harm",
        FAULT="connections reset at a random byte, requests retried",
        FIGURE="5,000 resets at a random byte of a create, message, order or approval, each retried: one effect each, no "
        "connection left",
        CONTROL="without the key, a retry is executed again",
        HEADLINE=(r"(\d+) resets", "one effect after each of {0} resets"),
        ROUNDS=5000,
        tests=(
            "gone_client::retried_request_executes_once_after_any_cut",
            "gone_client::retried_request_executes_once_on_postgresql",
        ),
    ),
    Suite(
        NUMBER=9,
        PROMISE="accounts are isolated",
        FAULT="every page, form and operation with another account's resources",
        FIGURE="every page, form and API operation with another account's resources, both databases: 0 leaks",
        CONTROL="the owner reaches all of them the same way",
        HEADLINE=(r"(\d+) leaks", "{0} leaks"),
        ROUNDS=1,
        tests=("apart::accounts_neither_see_nor_change_each_others_data",),
    ),
    Suite(
        NUMBER=10,
        PROMISE="there is no way around the key",
        FAULT="every operation with missing, malformed, revoked, expired, duplicated or foreign keys",
        FIGURE="every operation with a missing, malformed, revoked, expired, duplicated or other deployment's key: 401 "
        "before anything else",
        CONTROL="with a valid key, no operation responds 401",
        HEADLINE=(r"(\d+) requests[^,]*, all 401", "{0} of {0} requests rejected with 401"),
        ROUNDS=1,
        tests=("without_key::every_operation_checks_the_key_first",),
    ),
    Suite(
        NUMBER=11,
        PROMISE="revocation is prompt",
        FAULT="keys revoked while 3 processes accept them",
        FIGURE="100 trials, rejected by all of 3 processes within 1 s",
        CONTROL="a key revoked without a notification stays accepted",
        HEADLINE=(r"within (\d+ ms)", "{0} at most"),
        ROUNDS=100,
        tests=("revoking::revoked_key_is_rejected_in_three_processes_within_1s",),
    ),
    Suite(
        NUMBER=12,
        PROMISE="a sync error is fatal",
        FAULT="syncs fail with EIO",
        FIGURE="50 failing syncs (EIO): 0 false 201, not ready, exit status 1; other processes on the database end, too",
        CONTROL="if ten syncs report success without being done, responses without a sync are found",
        HEADLINE=(r"(\d+) failed syncs.*?(\d+) false 201", "{1} false 201 in {0} failed syncs"),
        ROUNDS=50,
        tests=("sync_error::failed_sync_ends_the_process",),
    ),
    Suite(
        NUMBER=13,
        PROMISE="a full disk is survived",
        FAULT="a small disk fills up and gets space again",
        FIGURE="a small disk fills up and gets space again, 20 times: writes 503, reads 200, recovery without a restart",
        CONTROL="with free space, nothing is rejected; deleted or added rows are noticed",
        HEADLINE=(r"back within (\d+ ms)", "writes back within {0} of free space"),
        ROUNDS=20,
        tests=("full_disk::full_disk_rejects_writes_and_serves_reads",),
    ),
    Suite(
        NUMBER=14,
        PROMISE="a read-only disk is readable",
        FAULT="starts on a read-only disk; a disk becomes read-only",
        FIGURE="20 starts on a read-only disk, and 20 times a disk becomes read-only: writes 503, reads 200",
        CONTROL="on a writable disk nothing is rejected; deleted or added rows are noticed",
        HEADLINE=(r"(\d+) starts on a read-only disk.*?(\d+) lost", "{1} lost in {0} starts"),
        ROUNDS=20,
        tests=("read_only_disk::read_only_disk_serves_reads", "read_only_disk::disk_that_becomes_read_only_serves_reads"),
    ),
    Suite(
        NUMBER=15,
        PROMISE="the database may go away",
        FAULT="PostgreSQL stopped; its network silent",
        FIGURE="50 server stops and 50 silent networks: 503 with `Retry-After` within 2 s, back within 5 s, `/livez` 200, "
        "`/readyz` 503",
        CONTROL="nothing is rejected while the database is up; a client without deadlines hangs on the silent network",
        HEADLINE=(r"silences of the network: 503 within (\d+ ms), back within (\d+ ms)", "503 within {0}, back within {1}"),
        ROUNDS=50,
        tests=(
            "database_gone::stopped_database_is_503_until_it_returns",
            "database_gone::silent_network_is_503_until_it_returns",
        ),
    ),
    Suite(
        NUMBER=16,
        PROMISE="a demoted primary is abandoned",
        FAULT="switch-overs while connections to the old primary stay open",
        FIGURE="20 switch-overs: 0 lost, writes back within 5 s of the promotion, no restart",
        CONTROL="a client that stays on the old server keeps getting stale responses",
        HEADLINE=(r"back within (\d+ ms)", "writes back within {0}"),
        ROUNDS=20,
        tests=("demoted::demoted_primary_is_replaced_by_the_promoted_standby",),
    ),
    Suite(
        NUMBER=17,
        PROMISE="load is sustained",
        FAULT="80 % of the peak rate for 10 minutes",
        FIGURE="80 % of the measured peak for 10 minutes: 0 errors, memory within 10 %. The peak is the highest rate at "
        "which 256 clients on a fixed schedule send 99 % of their requests after the previous response has arrived",
        CONTROL="at a higher rate the same clients fall behind",
        HEADLINE=(r"(\d+) answers, (\d+) errors", "{1} errors in {0} responses"),
        ROUNDS=600,
        tests=("overload::four_fifths_of_the_peak_are_sustained",),
    ),
    Suite(
        NUMBER=18,
        PROMISE="overload is shed",
        FAULT="three times the peak of lists, creates and connections",
        FIGURE="three times the peak measured with as many connections, from clients that wait for each response: goodput ≥ "
        "80 % of the peak, rejections within 100 ms (longer for clients that ignore `Retry-After`), normal within 5 s"
        " afterwards",
        CONTROL="with fewer connections than clients, some are rejected",
        HEADLINE=(r"(\d+) accepted \(peak (\d+) with", "{0} lists/s accepted; peak {1}"),
        ROUNDS=20,
        tests=(
            "overload::three_times_the_peak_of_lists_is_shed",
            "overload::three_times_the_peak_of_creates_is_shed",
            "overload::excess_connections_are_rejected",
            "overload::impatient_clients_do_not_slow_others",
        ),
    ),
    Suite(
        NUMBER=19,
        PROMISE="slow clients are bounded",
        FAULT="5,000 sockets that are silent, slow or do not read",
        FIGURE="5,000 sockets that are silent, send a slow head or body, or do not read: closed in time, other clients' p99 "
        "at most doubled",
        CONTROL="none of them is closed before its deadline",
        HEADLINE=(r"p99 (\S+) without and (\S+) with", "other clients' p99 {0} → {1}"),
        ROUNDS=5_000,
        tests=("slow::five_thousand_slow_clients_do_not_slow_others",),
    ),
    Suite(
        NUMBER=20,
        PROMISE="running out of file descriptors does no lasting harm",
        FAULT="500 connections with `ulimit -n 128`",
        FIGURE="`ulimit -n 128`, 500 connections: accepts again within 2 s, no busy loop",
        CONTROL="told to accept more connections than it has descriptors for, it runs out of them",
        HEADLINE=(r"more than it can.*accepts again after (\d+ ms)", "accepts again after {0}"),
        ROUNDS=1,
        tests=("descriptors::running_out_of_descriptors_does_no_lasting_harm",),
    ),
    Suite(
        NUMBER=21,
        PROMISE="malformed HTTP never desynchronises a connection",
        FAULT="conflicting lengths, broken chunks, stray line feeds",
        FIGURE="300 cases, among them bare line feeds at every place of a chunked body: each is rejected, or its connection "
        "is closed after the response; 0 desynchronised",
        CONTROL="the same cases catch a server that believes the first `Content-Length`",
        HEADLINE=(r"(\d+) malformed requests of \d+ kinds, (\d+) desynchronised", "{1} of {0} requests desynchronised"),
        ROUNDS=6_000,
        tests=("malformed::malformed_requests_never_desynchronise",),
        controls=("malformed::desynchronised_server_is_detected",),
    ),
    Suite(
        NUMBER=22,
        PROMISE="bad JSON is never a 5xx",
        FAULT="deep nesting, huge numbers, duplicate fields, NUL, bad UTF-8",
        FIGURE="300 cases, the same response on both databases",
        CONTROL="without petstore, the two databases disagree about NUL",
        HEADLINE=(r"(\d+) bodies.*?(\d+) with a 5xx", "{1} of {0} bodies answered with 5xx"),
        ROUNDS=7_000,
        tests=("odd_json::odd_json_is_never_a_5xx_on_either_database",),
        controls=("odd_json::databases_alone_would_respond_differently",),
    ),
    Suite(
        NUMBER=23,
        PROMISE="the contract holds",
        FAULT="Schemathesis, all checks, against the served document",
        FIGURE="Schemathesis, all checks, against the served document, both databases: 3 seeds × 500 examples per operation,"
        " 0 failures",
        CONTROL="against a document that says an id is a string, the same run fails",
        HEADLINE=(r"(\d+) cases, (\d+) failures", "{1} failures in {0} cases per database"),
        ROUNDS=500,
        tests=(
            "schemathesis::service_conforms_to_the_document",
            "schemathesis::service_conforms_to_the_document_on_postgresql",
        ),
        controls=("schemathesis::wrong_document_is_detected",),
        BINARY="contract",
    ),
    Suite(
        NUMBER=25,
        PROMISE="a flood of sign-ins is contained",
        FAULT="200 concurrent sign-ins while the API is loaded",
        FIGURE="200 concurrent clients that honour `Retry-After`, while the API is loaded: bounded concurrent hashing, API "
        "p99 at most doubled (median of rounds, each next to one without them)",
        CONTROL="part of the flood is hashed, part rejected",
        HEADLINE=(r"a second ([\d.]+) times as long", "API p99 × {0}"),
        ROUNDS=11,
        tests=("sign_ins::two_hundred_concurrent_sign_ins_are_contained",),
    ),
    Suite(
        NUMBER=26,
        PROMISE="signing in does not reveal which addresses have accounts",
        FAULT="response times of known and unknown addresses",
        FIGURE="same responses, medians within 5 %",
        CONTROL="a response without a hash shows in its time; each known address signs in",
        HEADLINE=(r"\(([+-][\d.]+ %)\)", "medians differ by {0}"),
        ROUNDS=500,
        tests=("guessing::sign_in_treats_known_and_unknown_addresses_alike",),
    ),
    Suite(
        NUMBER=27,
        PROMISE="cross-site requests are rejected",
        FAULT="every form with a wrong `Origin`, `Sec-Fetch-Site` or type",
        FIGURE="every form with every wrong pair of `Origin` and `Sec-Fetch-Site` and every content type: all rejected; GET "
        "changes nothing",
        CONTROL="the same forms work when sent from the console's own pages (`tests/console/forms.rs`)",
        HEADLINE=(r"(\d+) forms, each sent in (\d+) ways", "{0} forms × {1} ways, all rejected"),
        ROUNDS=1,
        tests=(
            "cross_site::cross_site_forms_are_rejected_without_effect",
            "cross_site::get_requests_change_nothing",
        ),
        BINARY="console",
    ),
    Suite(
        NUMBER=28,
        PROMISE="secrets never leak",
        FAULT="keys, passwords and a session searched for in logs and files",
        FIGURE="keys, passwords and a session searched for in the log at trace level, both databases, WAL, panic text and "
        "the console's recorded requests: 0 hits",
        CONTROL="values that are not secret are found in each of these places",
        HEADLINE=(r"(\d+) secrets in .*?(\d+) hits", "{1} hits for {0} secrets"),
        ROUNDS=1,
        tests=(
            "secrets::no_secret_is_in_logs_or_the_embedded_database",
            "secrets::no_secret_is_in_recorded_requests",
            "secrets::no_secret_is_in_postgresql",
        ),
    ),
    Suite(
        NUMBER=29,
        PROMISE="a drain is clean",
        FAULT="restarts under load behind HAProxy",
        FIGURE="100 restarts under load behind HAProxy, which polls `/readyz`: 0 failed requests; with the configuration of "
        "`scripts/cluster`, a process that is not ready answers its requests in flight",
        CONTROL="processes that vanish fail requests",
        HEADLINE=(r"under (\d+) requests, (\d+) of them failed", "{1} of {0} requests failed"),
        ROUNDS=100,
        tests=("drain::restarts_behind_a_proxy_drop_no_request", "drain::requests_in_flight_outlive_readiness"),
        controls=("drain::killed_process_fails_requests",),
    ),
    Suite(
        NUMBER=30,
        PROMISE="migrations are atomic and compatible",
        FAULT="`kill -9` within each migration; requests during upgrades",
        FIGURE="requests during an upgrade beside an older process; `kill -9` within a migration (PostgreSQL) and at "
        "random moments (both): 100 each, the database always opens",
        CONTROL="kills hit before and after the migration, and find it begun; a program older than `oldest_schema` is refused",
        HEADLINE=(r"(\d+) kills within each of (\d+) steps, nothing", "nothing left of a step in {0} kills within each of {1}"),
        ROUNDS=100,
        tests=(
            "migrations::migration_killed_within_a_step_leaves_no_trace",
            "migrations::killed_migration_leaves_a_usable_database",
            "migrations::killed_migration_leaves_a_usable_folder",
            "migrations::program_works_with_newer_schemas_that_allow_it",
        ),
    ),
    Suite(
        NUMBER=31,
        PROMISE="a live backup restores; a failed restore leaves the old or the new database whole",
        FAULT="backups killed; every system call of a restore fails or is killed",
        FIGURE="50 backups under writes and 50 killed halfway: every earlier acknowledged write present, no partial file. "
        "Every `unlink`, `rename`, `fsync`, `fdatasync`, `ftruncate` and `pwrite64` of a restore fails (EIO, EPERM, "
        "EROFS) or is killed, over a database with a log, with a hot journal, without its file, with an empty file, "
        "and a corrupt one: the old or the new database remains, `integrity_check` ok; exit status 0 only with the "
        "new one; no partial file after the next start; a second restore after a kill succeeds",
        CONTROL="a copy of the database file without its log lacks the last writes; a new database beside the old journal is "
        "noticed",
        HEADLINE=(r"(\d+) backups under writes.*?(\d+) lost", "{1} lost in {0} backups"),
        ROUNDS=50,
        tests=(
            "backup::backup_under_writes_restores_or_leaves_nothing",
            "restore_faults::restore_leaves_the_old_or_the_new_database_intact",
        ),
    ),
    Suite(
        NUMBER=32,
        PROMISE="a clock that jumps changes no expiry",
        FAULT="the clock jumps by an hour or a day",
        FIGURE="500 jumps of an hour or a day while the service runs: keys, sessions and idempotency records expire by true "
        "time, limits correct, ids unique; no start before 1970",
        CONTROL="the system clock would have decided otherwise",
        HEADLINE=(r"(\d+) jumps.*?none of (\d+) after", "0 of {1} uses accepted after expiry"),
        ROUNDS=500,
        tests=(
            "clock_jumps::clock_jumps_prolong_nothing",
            "clock_jumps::clock_jumps_keep_responses_for_a_day",
            "clock_jumps::clock_jumps_do_not_change_rate_limits",
            "clock_jumps::clock_jumps_do_not_lock_users_out",
            "clock_jumps::built_program_follows_true_time_when_its_clock_jumps",
            "clock_jumps::service_refuses_to_start_before_1970",
        ),
    ),
    Suite(
        NUMBER=33,
        PROMISE="rate limits are exact and bounded",
        FAULT="concurrent floods, forged addresses, a million accounts",
        FIGURE="± 1 request, at once and over time; no forged address counts; a million accounts in bounded memory",
        CONTROL="a second process allows as many again; a trusted proxy's forged addresses count; all accounts are remembered"
        " for two windows",
        HEADLINE=(r"(\d+) in (\d+)s of a flood, ([\d.]+) to", "{0} of {2} due requests in {1} s"),
        ROUNDS=100,
        tests=(
            "rate_limit::burst_is_limited_exactly",
            "rate_limit::sustained_rate_is_limited_exactly",
            "rate_limit::forged_forwarded_address_gains_no_attempts",
            "rate_limit::million_accounts_use_little_memory_for_a_short_time",
        ),
    ),
    Suite(
        NUMBER=34,
        PROMISE="the death of the writer is loud",
        FAULT="panics within a write",
        FIGURE="50 panics in a write: waiting requests get 503, not ready, exit status 1",
        CONTROL="after a write that fails without a panic the service continues",
        HEADLINE=(r"(\d+) panics: exit status 1 each time", "exit status 1 after {0} of {0} panics"),
        ROUNDS=50,
        tests=("dead_writer::panic_of_the_writer_ends_the_process",),
    ),
    Suite(
        NUMBER=35,
        PROMISE="the write-ahead log is bounded; exports do not hold it",
        FAULT="a reader that never ends; exports that nobody reads",
        FIGURE="a foreign reader that never ends, under batches of the longest messages: below 1 GiB (no batch starts beyond"
        " 245,000 pages; writes get 503 until the reader ends). `pets export` and `messages export` into pipes that "
        "nobody reads: twice as much is written and no write rejected; each export, read at last, has every row that "
        "existed throughout exactly once",
        CONTROL="without a limit, the same writes under the same reader grow the log further",
        HEADLINE=(r"([\d.]+ MiB) under a reader", "{0} at most"),
        ROUNDS=245_000,
        tests=(
            "wal_bound::endless_reader_does_not_fill_the_disk",
            "wal_bound::stalled_exports_do_not_delay_writes",
        ),
    ),
    Suite(
        NUMBER=36,
        PROMISE="every accepted message reaches the web server, and through the documented bridge the stream",
        FAULT="relay, receiver, bridge, broker and database killed at random",
        FIGURE="100 × 1,000 messages over two processes, with relay, receiver (a web server, or the documented bridge and its "
        "broker) and database killed at random: 0 missing, and 0 twice in the stream",
        CONTROL="messages marked as sent before the receiver acknowledged them are missing",
        HEADLINE=(r"(\d+) x (\d+) messages.*?(\d+) missing", "{2} missing of {0} × {1}"),
        ROUNDS=100,
        tests=(
            "outbox::acknowledged_messages_reach_the_stream_once",
            "outbox::acknowledged_messages_reach_the_stream_once_from_postgresql",
            "outbox::acknowledged_messages_reach_the_endpoint",
            "outbox::acknowledged_messages_reach_the_endpoint_from_postgresql",
        ),
    ),
    Suite(
        NUMBER=37,
        PROMISE="the API is linearizable",
        FAULT="8 concurrent clients, kills, terminated sessions, fail-overs",
        FIGURE="5,000,000 operations of 8 clients on animals, their orders and idempotency keys, in one, two and three processes "
        "on SQLite and in three on PostgreSQL, with kills of processes, terminated sessions and fail-overs to a synchronous "
        "standby: one order of the operations explains all responses; a revoked key is accepted by other processes for 1 s at "
        "most",
        CONTROL="a read falsified in a recorded history is a violation",
        HEADLINE=(r"processes: (\d+) operations.*?(\d+) violations", "{1} violations in {0} operations in one process"),
        ROUNDS=5_000,
        tests=(
            "linearizable::embedded_database_is_linearizable_in_one_process",
            "linearizable::embedded_database_is_linearizable_in_two_processes",
            "linearizable::embedded_database_is_linearizable_in_three_processes",
            "linearizable::postgresql_is_linearizable_in_three_processes",
            "linearizable::postgresql_is_linearizable_through_fail_overs",
        ),
    ),
    Suite(
        NUMBER=38,
        PROMISE="no failing system call goes unnoticed",
        FAULT="every file and network call fails or is killed",
        FIGURE="every `openat`, `unlink`, `rename`, `ftruncate`, `mmap`, `pwrite64`, `fsync` and `fdatasync` of 13 "
        "commands that write (accounts, keys, import, exports, backup, restore, move, migrate), of a service and of a "
        "quickstart, by EIO, ENOSPC, EPERM and `kill -9`; every `connect`, `sendto`, `writev` and `recvfrom` of a service on "
        "PostgreSQL: a command that reports success has done everything, any other everything or nothing, `integrity_check` "
        "ok; a service loses no acknowledged write; a quickstart announces nothing that is missing, and the next one "
        "completes it",
        CONTROL="success of a command that did nothing, a part of an output, a deleted row, a missing animal and a wrong key are "
        "noticed",
        HEADLINE=(r"(\d+) of \d+ faults", "{0} faults in commands, all reported truly"),
        ROUNDS=1,
        tests=(
            "failing_calls::command_does_everything_or_nothing_and_reports_which",
            "failing_service::service_acknowledges_nothing_that_a_failing_call_loses",
            "failing_service::service_on_postgresql_loses_nothing_to_a_failing_call",
            "failing_service::quickstart_announces_only_what_is_there",
        ),
    ),
    Suite(
        NUMBER=39,
        PROMISE="nothing outside the process can stall it",
        FAULT="stalled outputs, collector, receiver of messages, PostgreSQL, resolver, mounts, disk",
        FIGURE="20 rounds beside each of 14 blocked neighbours (stderr, stdout, the pipe of an export, the supervisor's socket; "
        "a collector, a receiver of messages and PostgreSQL that are silent, and names of them that are not resolved; certificates on a "
        "mount that hangs): health checks and metrics respond within 1 s, requests succeed unless the "
        "database is blocked, SIGTERM ends the process within 17 s; also a start beside certificates on a mount that hangs; "
        "also calls on the database's files that do not return, as on a frozen file system, until all workers are blocked, with "
        "one worker and with two: the operations listener responds within 1 s (`/readyz` with 503), and is ready afterwards",
        CONTROL="a suspended process is noticed, by the health checks and by the wait for its end; while all workers are blocked, "
        "a public listener does not respond",
        HEADLINE=(
            r"health checks and metrics within (\S+) \(.*?the end within (\S+).*?listener responds within (\S+) .*?the end within (\S+)",
            "health checks within {0}, end within {1}; on a frozen file system {2} and {3}",
        ),
        ROUNDS=20,
        tests=(
            "blocked::blocked_neighbours_stall_no_health_check_and_no_stop",
            "blocked::start_ends_on_sigterm_while_its_certificate_hangs",
            "frozen::frozen_file_system_stalls_no_health_check_and_no_stop",
        ),
    ),
    Suite(
        NUMBER=40,
        PROMISE="proxies and the service read the same bytes",
        FAULT="odd requests through HAProxy, nginx and Caddy",
        FIGURE="1,000,000 odd requests through each of HAProxy, nginx and Caddy with the configurations of `ops/proxy` (no TLS), "
        "and directly, drawn from a grammar of framing, chunks, trailers, targets and header lines, and 100,000 over HTTP/2: "
        "behind each proxy the service answers the requests that the proxy forwarded, in their order, and nothing that the "
        "proxy took for a body; no response reaches another connection; the service serves no path that the proxy's rule blocks",
        CONTROL="an origin that reads no bodies and resolves paths is noticed, because it answers bodies behind each proxy and "
        "serves blocked paths",
        HEADLINE=(r"(\d+) cases.*?(\d+) relevant", "{1} differences in {0} cases through each of 3 proxies"),
        ROUNDS=1_000_000,
        tests=(
            "same_bytes::proxies_and_the_service_read_the_same_bytes",
            "same_bytes::proxies_turn_http2_into_the_requests_that_they_count",
        ),
        controls=("same_bytes::lenient_origin_is_detected_behind_every_proxy",),
    ),
    Suite(
        NUMBER=41,
        PROMISE="one seed determines everything",
        FAULT="simulated power failures, kills, failing I/O and stepped clocks",
        FIGURE="100,000 seeds, each a simulation on one thread, in simulated time, of the store, its writer, the relay, the rate "
        "limits and the key cache of one or two processes: power failures, kills within a change, failing reads and writes, "
        "failing syncs (unless another program has the database open), a full disk, a web server that loses messages, stepped "
        "clocks. Acknowledged and read rows survive, at most one effect per idempotency key, ids are not reused, every "
        "acknowledged message reaches the web server, no period has more requests than the limit allows, a revoked key is rejected "
        "within 255 ms, `integrity_check` ok, recovery without help",
        CONTROL="eight planted bugs, such as a response before the commit, are each found within 100 seeds; the same seed "
        "gives the same trace",
        HEADLINE=(r"(\d+) seeds.*?(\d+) violations", "{1} violations in {0} seeds"),
        ROUNDS=100_000,
        tests=("every_promise_holds_for_every_seed",),
        controls=("planted_bugs_are_found_and_replayed", "same_seed_gives_the_same_trace"),
        BINARY="simulation",
    ),
    Suite(
        NUMBER=42,
        PROMISE="nothing is lost and nothing grows over a long time",
        FAULT="2 hours of load with restarts, rotations, clock steps and fail-overs",
        FIGURE="2 hours on SQLite over TLS, and at the same time on PostgreSQL with a synchronous standby, under a mixed load "
        "on a million animals, more than the caches hold; every 10 minutes a restart, a key rotation, a log rotation, the "
        "expiry of stored responses and clock steps of a day, on SQLite a backup that is restored and a new certificate, on "
        "PostgreSQL a fail-over: 0 acknowledged writes lost or duplicated, requests fail only during restarts and fail-overs; "
        "the write-ahead log below 64 MiB, memory within 20 %, descriptors within 8, the 99th percentile of latency within a "
        "factor of 2",
        CONTROL="connections that accumulate, growth of each resource in made-up samples, and a deleted row are noticed",
        HEADLINE=(
            r"sqlite for.*? imported animals: (\d+) requests, (\d+) acknowledged.*?(\d+) lost",
            "{2} of {1} rows lost in {0} requests on SQLite",
        ),
        ROUNDS=120,
        tests=(
            "soak::embedded_database_stays_flat_through_every_event",
            "soak::postgresql_stays_flat_through_every_event",
        ),
        controls=("soak_judge::growth_of_each_resource_is_noticed",),
        CONCURRENT=True,
    ),
    Suite(
        NUMBER=44,
        PROMISE="a client that follows `after` misses nothing",
        FAULT="one of three processes killed, one stopped, in each round",
        FIGURE="100 rounds over three processes, one killed and one stopped for 1.4 s in each, animals and orders with and "
        "without idempotency keys: every acknowledged id received exactly once, in order; also on SQLite",
        CONTROL="an id that becomes visible after a greater one is missed",
        HEADLINE=(r"received all of (\d+) acknowledged animals", "{0} animals, each received once"),
        ROUNDS=100,
        tests=(
            "followers::followers_miss_nothing_across_three_processes",
            "followers::followers_miss_nothing_in_the_embedded_database",
        ),
    ),
    Suite(
        NUMBER=45,
        PROMISE="a hanging process delays the others for a bounded time",
        FAULT="processes stopped within a batch on PostgreSQL",
        FIGURE="100 processes stopped within a batch on PostgreSQL, of orders and of animals: other writes succeed within 1 "
        "s",
        CONTROL="while the lock is held longer than a write waits, writes are rejected and no abandoned write waits in the "
        "server",
        HEADLINE=(r"took (\S+) at most.*took (\S+) at most", "orders {0}, animals {1} at most"),
        ROUNDS=100,
        tests=(
            "hung_process::hung_batch_of_orders_delays_others_within_the_bound",
            "hung_process::hung_batch_of_animals_delays_others_within_the_bound",
        ),
        controls=("hung_process::abandoned_writes_do_not_wait_on_in_the_server",),
    ),
    Suite(
        NUMBER=48,
        PROMISE="no mistake of an operator destroys a store",
        FAULT="every writing command aimed at a store's files; altered backups",
        FIGURE="every command that writes a file × every file of two stores in use, the command's own and another, directly, "
        "through relative paths, symbolic and hard links, with and without `--force`: 0 files changed. Backups in which an "
        "object of the schema, the history or a setting is missing, changed or added: whatever restores is served, and "
        "nothing is created otherwise",
        CONTROL="the same commands write the same names elsewhere, and a changed file is noticed; a database without a table "
        "that is put in place by hand is noticed",
        HEADLINE=(r"(\d+) commands.*?(\d+) stores damaged", "{1} stores damaged by {0} commands"),
        ROUNDS=1,
        tests=(
            "mistakes::no_command_writes_to_the_files_of_a_store",
            "mistakes::every_restored_database_is_served",
        ),
    ),
    Suite(
        NUMBER=49,
        PROMISE="a process uses one PostgreSQL server",
        FAULT="a balancer over two primaries, a stale primary, another database",
        FIGURE="20 rounds each with two writable servers behind a balancer, a stale primary and another database in the list "
        "of addresses: 0 responses of the wrong server, logged, and back on the right one within 10 s",
        CONTROL="a client without the check is served by the wrong server",
        HEADLINE=(r"0 of (\d+) responses", "0 of {0} responses of the wrong server"),
        ROUNDS=20,
        tests=(
            "one_server::process_stays_on_one_of_two_servers_behind_a_balancer",
            "one_server::stale_primary_is_refused",
            "one_server::another_database_is_refused",
        ),
    ),
    Suite(
        NUMBER=50,
        PROMISE="the role of the account and the access of the key decide",
        FAULT="every operation × role × access × owner; roles changed meanwhile",
        FIGURE="every operation × {no key, revoked key, customer, staff, demoted, promoted} × {key that may write, key that only "
        "reads} × {own object, another account's, none}, in two processes on both databases, after each of 50 demotions and "
        "promotions, and 100 changes of the role and 50 ended keys while requests run: 0 permissions beyond the table, changes "
        "apply within 1 s, a replay by a demoted account is forbidden",
        CONTROL="a role changed by hand is noticed in every case that it changes; a change without a notification is noticed",
        HEADLINE=(r"(\d+) combinations, (\d+) permissions beyond", "{1} permissions beyond the table in {0} combinations"),
        ROUNDS=50,
        tests=(
            "permissions::every_operation_admits_exactly_the_callers_of_the_table",
            "role_changes::changed_permissions_apply_within_1s_while_requests_run",
            "role_changes::changed_permissions_apply_within_1s_on_postgresql",
        ),
    ),
    Suite(
        NUMBER=51,
        PROMISE="a restart never loses or mixes a store",
        FAULT="files of the store moved away or replaced, then restarts",
        FIGURE="`petstore.db`, its log, its index, the lock file and the folder moved away, or replaced by earlier copies, by "
        "backups and by files of another store, singly and in pairs, with the log empty, partly and wholly applied, idle and "
        "under 32 clients: every case; every start that is served has all acknowledged writes, 0 lost once the files are back, "
        "0 mixed, 0 empty stores",
        CONTROL="an earlier copy that is served because the record is overwritten lacks writes, which is noticed",
        HEADLINE=(r"(\d+) cases.*?(\d+) starts refused", "{0} cases, {1} starts refused, 0 writes lost"),
        ROUNDS=348,
        tests=("restarts::restart_never_loses_or_mixes_a_store",),
    ),
)


def folder(binary):
    """Returns the folder of a test binary, which is that of the product or of verification."""
    return next(str(path) for path in (Path("verification/tests", binary), Path("tests", binary)) if (ROOT / path).exists())


def build(binary, *flags, environment=None):
    """Builds the program and a test binary before it runs, so that its output does not contain the compiler's."""
    if not shutil.which("cargo"):
        raise Failed("cargo is missing: install Rust")
    for command in (["build", "--bin=petstore"], ["test", "--no-run", f"--test={binary}"]):
        if subprocess.run(["cargo", *command, *CARGO, *flags], cwd=ROOT, env=environment).returncode:
            raise Failed(f"{folder(binary)} does not build")


def run_tests(trial, row, names):
    """Runs tests at the same time. Returns their measurements and a list of their failures. The log is kept in target."""
    rounds = trial.rounds(row.ROUNDS)
    environment = os.environ | {"PETSTORE_ROUNDS": str(rounds), "PETSTORE_SEED": str(trial.seed)}
    log_path = ROOT / "target" / f"promise-{row.NUMBER}-{names[0].rpartition('::')[2]}.log"
    log_path.parent.mkdir(exist_ok=True)
    command = ["cargo", "test", "--release", *CARGO, f"--test={row.BINARY}", "--", *EXACTLY, f"--test-threads={len(names)}", *names]
    measured, ran, failed = [], False, False
    with log_path.open("w") as log, session(command, environment, log) as test:
        for line in test.stdout:
            log.write(line)
            log.flush()
            # The test runner may print the test's name on the same line.
            _, is_measurement, figure = line.partition("measured: ")
            if figure.strip():
                measured.append(figure.strip())
            # The test runner repeats the failures afterwards.
            failed = failed or line == "failures:\n"
            if line.strip() and not is_measurement and not failed:
                trial.say(line.strip())
            counts = re.match(r"test result: .* (\d+) passed; (\d+) failed", line)
            ran = ran or (counts is not None and int(counts[1]) + int(counts[2]) == len(names))
        status = test.wait()
    if not ran:
        return measured, [f"there is no test {' or '.join(names)}, or it did not complete: see {log_path.relative_to(ROOT)}"]
    if status:
        return measured, [f"{why_it_failed(log_path.read_text(errors='replace'))} (the log: {log_path.relative_to(ROOT)})"]
    return measured, []


@contextlib.contextmanager
def session(command, environment, log):
    """Runs a process in its own session and ends the whole session on exit."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        errors="replace", start_new_session=True,
    )
    try:
        yield process
    finally:
        # The test's database servers stop and delete their folders first. The rest is killed after a timeout.
        until = time.monotonic() + END_TIMEOUT
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            while time.monotonic() < until:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def why_it_failed(log):
    """Returns the message of the panic that ended the test, in one line."""
    found = re.search(r"^thread '.*' .*panicked at .*:\n((?:.*\n)*?)(?=note: |stack backtrace|\n|test |$)", log, re.M)
    words = found[1].splitlines() if found and found[1].strip() else log.splitlines()[-QUOTED_LINES:]
    return " ".join(" ".join(words).split())
