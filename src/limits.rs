//! Every bound and size, each with its reason, and the relations between them checked when this file compiles.
//!
//! A limit that an operator may change stands here with its default; what a configuration may set is checked
//! against the hard bounds below.

use std::time::Duration;

// === heads ===

/// A request head, octets. nginx allows 4 × 8 KiB, HAProxy 16 KiB: enough for large cookies, and a connection that
/// has sent this much without a head costs no more than this.
pub const REQUEST_HEAD_BYTES_MAX: usize = 32 * 1024;
/// A request target, octets. IDOL's `MaxInputString` is 64,000 in every published configuration, but such actions
/// travel as POST bodies; a target shares the head with the fields.
pub const TARGET_BYTES_MAX: usize = 24 * 1024;
/// Fields in a head. httparse's table of them is on the stack: 32 octets each.
pub const FIELDS_MAX: usize = 128;
/// A response head, octets. Children are ours: larger than what clients may send.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Empty lines passed over before a request line: RFC 9112 2.2 asks for at least one, some old clients send two.
pub const EMPTY_LINES_MAX: usize = 2;
/// Options that the `Connection` lines of a head may name. Each is compared with every field: 64 × 128 short
/// comparisons stay below the cost of reading the head, 16,000 × 128 would not.
pub const CONNECTION_OPTIONS_MAX: usize = 64;
/// Interim (1xx) answers before a final one. A child that sends more is looping.
pub const INTERIM_ANSWERS_MAX: usize = 32;

// === bodies ===

/// Octets of chunk extensions and trailers in one body, all together. They are dropped, so they may not cost much
/// (CVE-2024-22019: unbounded work for each octet of body).
pub const CHUNK_OVERHEAD_BYTES_MAX: usize = 16 * 1024;
/// Hexadecimal digits of a chunk size, leading zeros included: 2^64 has 16.
pub const CHUNK_SIZE_DIGITS_MAX: usize = 16;
/// A request body that is streamed to a child (reads), default. Larger is 413.
pub const BODY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// A body that is held whole: a change, or a form that must be read to find the action. Default; larger is 413.
pub const ACTION_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bodies held at once by all workers, octets.
pub const ACTION_BYTES_IN_FLIGHT_MAX: usize = 256 * 1024 * 1024;
/// Of the primary's answer to a change, at most this much is held until the acknowledgement; a longer answer is cut
/// from the reply and replaced by a summary.
pub const ANSWER_HELD_MAX: usize = 1024 * 1024;

// === io ===

/// One of the small buffers that clients are armed on: most request heads fit, and a thousand cost 4 MiB.
pub const SMALL_BUFFER_BYTES: usize = 4 * 1024;
/// Small buffers of a worker.
pub const SMALL_BUFFERS: usize = 1024;
/// One of the large buffers that children are armed on. A 16 KiB response fits with its head (facts: 28 µs of CPU
/// with 4 KiB buffers, 14 with 32 KiB).
pub const LARGE_BUFFER_BYTES: usize = 32 * 1024;
/// Large buffers of a worker: 2 MiB, which stays in a core's cache; the kernel hands them out first in, first out.
pub const LARGE_BUFFERS: usize = 64;
/// Small buffers lent to the kernel at first: 512 KiB, the level-2 cache of a core. The kernel takes them first in,
/// first out, so more would only be colder; the driver doubles the number when they run short.
pub const SMALL_BUFFERS_LENT: usize = 128;
/// Large buffers lent to the kernel at first (measured with 64 connections: 16 run short, 64 do not).
pub const LARGE_BUFFERS_LENT: usize = 64;
/// Submissions that an io_uring instance takes at once, a power of two: more than a busy turn makes. What does not
/// fit goes with a second call. Smaller ones are tried where locked memory is limited.
pub const URING_ENTRIES: u32 = 1024;
/// Completions for each submission: every small buffer may come back in one turn, with sends and accepts beside.
/// What does not fit waits in the kernel, at a price, but is not lost.
pub const URING_COMPLETIONS_PER_ENTRY: u32 = 4;
/// Octets received on one connection and not yet taken: above it receiving stops, below half it starts again.
pub const RECEIVED_BYTES_MAX: usize = 256 * 1024;
/// Octets copied out of scarce buffers for slow peers, a worker.
pub const SPILL_BYTES_MAX: usize = 128 * 1024 * 1024;
/// A receive that is out of time while it has no buffer looks again after this long: its peer may not be to blame.
pub const STARVED_LOOK: Duration = Duration::from_secs(1);
/// Octets of one send to a slow peer's connection, about: what it pins until they are taken, and what it must take
/// within its time-out. Four large buffers.
pub const SEND_BYTES_MAX: usize = 128 * 1024;
/// Octets that the kernel holds unsent for a client (`TCP_NOTSENT_LOWAT`). More would hide a slow client's progress for
/// longer than its time-out: send buffers grow to megabytes, and tell of room only when a third is free.
pub const CLIENT_UNSENT_BYTES_MAX: u32 = 256 * 1024;
/// Pieces of one send: a head, some chunks with their framing. IOV_MAX is 1,024.
pub const SEND_PIECES_MAX: usize = 64;
/// Connections of one worker, clients and children together; also bounded by RLIMIT_NOFILE.
pub const CONNECTIONS_MAX: usize = 65_536;
/// Parked serving tasks a worker keeps for the next request.
pub const TASKS_PARKED_MAX: usize = 1024;
/// How long a connection that we close is still read, so that the peer gets our last octets and not a reset
/// (RFC 9112 9.6).
pub const LINGER: Duration = Duration::from_secs(2);

// === executor ===

/// Pieces of received octets queued on one connection: a peer that sends single octets must not have a buffer, or a
/// copy with its bookkeeping, for each of 256 Ki. Small buffers that are full reach the bound in octets first.
pub const RECEIVED_CHUNKS_MAX: usize = 128;
/// Rounds of tasks in a turn before the driver is asked again: tasks that wake each other finish within one turn, and
/// cannot keep the driver waiting for ever.
pub const TASK_ROUNDS_MAX: usize = 4;
/// Octets read and dropped from a connection that lingers: a request body that nobody wants, not a download. nginx and
/// HAProxy bound the time only.
pub const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// First pause of a listener when descriptors or memory have run out; it doubles. Short, as a connection may close at
/// any moment.
pub const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause of a listener: nginx pauses for 500 ms.
pub const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Events taken from epoll at once. More wait in the kernel, in the order in which they will be told.
pub const EPOLL_EVENTS_PER_TURN: usize = 256;
/// Connections accepted at one event: a burst must not hold up those that are served.
pub const EPOLL_ACCEPTS_PER_EVENT: usize = 64;

const _: () = assert!(RECEIVED_CHUNKS_MAX * SMALL_BUFFER_BYTES > RECEIVED_BYTES_MAX);

// === actions ===

/// An action's name, octets after decoding. The longest name of the products that we know has under 40.
pub const ACTION_NAME_BYTES_MAX: usize = 64;
/// A rule's pattern, octets.
pub const RULE_PATTERN_BYTES_MAX: usize = 256;
/// Rules of a group, its built-in set included: they are asked in order, so a request pays for each.
pub const RULES_MAX: usize = 1024;
/// Different conditions on parameters in a group's rules: one bit of a word each.
pub const RULE_CONDITIONS_MAX: usize = 64;
/// Random digits of an injected value: what fits 64 bits with a sign, as ids are kept.
pub const INJECTED_DIGITS_MAX: u8 = 18;
/// The token of an asynchronous action, octets as it came: base64 of a host name (253 at most), a port, a queue's name and
/// a number.
pub const TOKEN_BYTES_MAX: usize = 512;
/// Parts of a multipart body. A request that uploads many streams has dozens.
pub const MULTIPART_PARTS_MAX: usize = 4096;
/// The head of one part, octets: a disposition with a long file name, and a type.
pub const MULTIPART_PART_HEAD_BYTES_MAX: usize = 4 * 1024;
/// A multipart boundary, octets (RFC 2046 5.1.1).
pub const MULTIPART_BOUNDARY_BYTES_MAX: usize = 70;

const _: () =
    assert!((253 + 1 + 5 + 1 + 64 + 1 + 20_usize).div_ceil(3) * 4 <= TOKEN_BYTES_MAX, "a queue's name has 64 octets");
const _: () = assert!(RULE_CONDITIONS_MAX <= u64::BITS as usize, "the conditions met are bits of a u64");
const _: () = assert!(ACTION_NAME_BYTES_MAX <= u8::MAX as usize, "a name's length is one octet");

/// The body of a request that we answer ourselves, octets: a form with a handful of parameters.
pub const OWN_BODY_BYTES_MAX: usize = 64 * 1024;

// === children ===

/// A connection to a child that has been quiet for this long is asked for a sign of life (TCP keep-alive) ...
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// ... and again after this long ...
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// ... until it has given none, or has acknowledged nothing, for this long (`TCP_USER_TIMEOUT`). A child that works
/// on a long answer gives signs; a host that has lost its power does not.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Names of one child in tokens, beside its address: one a network that it is in.
pub const ALIASES_MAX: usize = 16;
/// Children of a group. DAH allows 1,024 and advises 16.
pub const CHILDREN_MAX: usize = 1024;
/// Places of a group beside those of its configured children, for children that are added while we run. Each costs a
/// lane, and a row in the table of every change.
pub const SPARE_PLACES: usize = 16;
const _: () = assert!(SPARE_PLACES < CHILDREN_MAX);
/// Idle connections to one child, a worker.
pub const POOL_IDLE_MAX: usize = 256;
/// How long an idle connection to a child is kept. Below the usual keep-alive time of servers (Apache: 5 s).
pub const POOL_IDLE: Duration = Duration::from_secs(4);

// === changes ===

/// Changes that wait for the sequencer, a worker. Full is 503 `overloaded`.
pub const SUBMISSIONS_MAX: usize = 1024;
/// Slots of a group's ring, a power of two.
pub const RING_SLOTS: usize = 4096;
/// Octets of the entries in a group's ring.
pub const RING_BYTES_MAX: usize = 64 * 1024 * 1024;

// === workers ===

/// A request body is received in large buffers from this many octets on: below it, small ones do, and cost fewer
/// clients their place.
pub const LARGE_BODY_BYTES: u64 = 64 * 1024;
/// Vectors of heads that are kept for the next request, octets at most: a thousand parked tasks keep four each.
pub const HEAD_VECTOR_KEPT_MAX: usize = 8 * 1024;
/// How often a read that waits for its answer looks whether its child is down: then another may be asked.
pub const HUNG_LOOK: Duration = Duration::from_secs(1);
/// How often a lane, or a read, tries again where our own descriptors or ports have run out.
pub const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// ACI requests that a worker keeps for `GetRequestLog`, and that it shows of all workers together: a screenful or two, as
/// with other ACI servers.
pub const REQUESTS_KEPT_MAX: usize = 100;
/// What is kept of each, octets: a hundred are as much as a few heads.
pub const REQUEST_SHOWN_BYTES_MAX: usize = 1024;

/// How often a worker closes what has idled for too long and shows its counts. Each look costs a walk over the idle
/// connections.
pub const KEEPER_INTERVAL: Duration = Duration::from_secs(1);

const _: () = assert!(RING_SLOTS.is_power_of_two());
const _: () = assert!(ACTION_BYTES_MAX <= RING_BYTES_MAX, "one entry must fit the ring");
const _: () = assert!(TARGET_BYTES_MAX < REQUEST_HEAD_BYTES_MAX);
const _: () = assert!(URING_ENTRIES.is_power_of_two());
const _: () = assert!(
    (URING_ENTRIES * URING_COMPLETIONS_PER_ENTRY) as usize >= 2 * (SMALL_BUFFERS + LARGE_BUFFERS),
    "what all buffers bring must fit the completion queue"
);
const _: () = assert!(RECEIVED_BYTES_MAX >= 2 * LARGE_BUFFER_BYTES, "half the cap must hold a buffer");

// === configuration ===

/// A child's weight, at most: wide enough for per-mille shares, and a sum over all children fits a u32.
pub const WEIGHT_MAX: u32 = 10_000;
/// Groups in a configuration: each has a ring, and all are stepped by one sequencer thread.
pub const GROUPS_MAX: usize = 64;
/// Listeners in a configuration: each is a socket on every worker.
pub const LISTENERS_MAX: usize = 64;
/// Routes of a listener: they are tried one by one.
pub const ROUTES_MAX: usize = 256;
/// A name (of a group, a child, a location), octets: it becomes a metric's label and a part of an admin path.
pub const NAME_BYTES_MAX: usize = 64;
/// Worker threads.
pub const WORKERS_MAX: usize = 256;
/// The longest duration a configuration may name: `tunnel_idle` of a week is a habit, a year is a slip.
pub const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What each memory budget may be set to at most, octets: a slip of a unit should not wait for the OOM killer.
pub const BUDGET_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;
/// What `body_bytes_max` may be set to at most: nothing of it is held.
pub const BODY_BYTES_HARD_MAX: u64 = 1024 * 1024 * 1024 * 1024;
/// A configuration file, octets. A thousand children with a rule each are a tenth of it; a device file is endless.
pub const CONFIG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The path of the state directory, octets: the files below it, with the names of a group and a child, must fit
/// PATH_MAX (4,096).
pub const STATE_PATH_BYTES_MAX: usize = 1024;

const _: () = assert!(WEIGHT_MAX as u64 * CHILDREN_MAX as u64 <= u32::MAX as u64);

// === routing ===

/// Retries of reads, as a share of the requests. Finagle and linkerd use the same: enough for one child of five.
pub const RETRY_PERCENT: u8 = 20;
/// Retries that a quiet time saves up, and what a group begins with: the reads in flight on a busy child that dies.
pub const RETRY_SAVED_MAX: u16 = 512;
/// Classes of actions that a group's cost model keeps apart: 64 octets each. Sites have dozens; what is beyond goes by
/// the coarser class.
pub const COST_CLASSES_MAX: usize = 1024;
const _: () = assert!(COST_CLASSES_MAX.is_power_of_two(), "a place is a key's lower bits");
/// Places at which a class is looked for: the bound of what a made-up path costs a choice.
pub const COST_CLASS_LOOKS_MAX: usize = 8;
/// Up to so many children `predictive` looks at each: below a tenth of a microsecond.
pub const COST_SCAN_MAX: usize = 16;
/// Of more children, at so many: of 64, 8 are as good as all to a few per cent, 2 lose most of the gain.
pub const COST_SAMPLE: usize = 8;
/// A child that `predictive` has not chosen for so long gets the next read: it may be better than it was.
pub const COST_IDLE_MAX: Duration = Duration::from_secs(20);
/// What `slots` of a child may be set to at most.
pub const SLOTS_MAX: u32 = 65_536;
/// Octets of a probe's answer that are kept for its pattern. Health pages are short.
pub const PROBE_BODY_BYTES_MAX: usize = 16 * 1024;

// === mirror ===

/// From the moment a change is on its way to a child until it counts as slow, default. Long enough for a commit on a
/// busy disk, short enough for a client to wait.
pub const CHANGE_DEADLINE: Duration = Duration::from_secs(5);
/// How much later than its sibling a child may answer before it is demoted: children that are slow together (a large
/// change, one disk below all) are not torn apart.
pub const CHANGE_GRACE: Duration = Duration::from_secs(1);
/// What a client waits for its change at most, the line before it included. Above what clients usually wait themselves.
pub const CHANGE_PATIENCE: Duration = Duration::from_secs(60);
/// After its deadline a request is left in flight this much longer: a late answer saves a child from a reseed.
pub const CHANGE_LATE: Duration = Duration::from_secs(30);
/// How long a request is left in flight on a child that shows no life, where no sibling has answered: all may be busy
/// with it, and giving up a change that may not be repeated would cost the group every child.
pub const CHANGE_SILENCE_MAX: Duration = Duration::from_secs(300);
/// Times that a change is tried on a child that answers 5xx, if it may be repeated; then that is its answer.
pub const CHANGE_TRIES_MAX: u32 = 3;
/// Between these tries; doubled before the third.
pub const CHANGE_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Times that a change is sent to a child that never answers it. Such a change may be what brings the child down.
pub const CHANGE_SENDS_MAX: u32 = 5;
/// How long a connection is trusted after an answer: a change that is sent again goes on no older one.
pub const CHANGE_CONNECTION_FRESH: Duration = Duration::from_secs(1);
/// Entries that a child which has replayed its backlog may be behind when it goes live. Under load none stands exactly
/// at the head; reads still wait until it has applied what was answered.
pub const LIVE_LAG_MAX: u64 = 64;
/// How long the record of how far children have come waits for a change to go with. What a power cut makes a child be
/// sent again is what it confirmed in this time.
pub const MARKS_PAUSE: Duration = Duration::from_millis(50);
/// How often it is looked at how much each child is owed.
pub const RETENTION_LOOK: Duration = Duration::from_secs(1);
/// Refused changes that are remembered for children that have yet to be sent them: 32 MiB.
pub const VERDICTS_MAX: usize = 1 << 20;
/// The largest changes that a segment holds at least: what is left over at its end is a part of it, not most.
pub const SEGMENT_CHANGES_MIN: u64 = 4;
/// What `action_bytes_max` may be with a journal: so many fit the largest segment.
pub const ACTION_BYTES_KEPT_MAX: u64 = SEGMENT_BYTES_MAX / SEGMENT_CHANGES_MIN;
/// Octets on record that one child may be behind, default: half of the journal, so that one child alone does not fill it.
pub const BACKLOG_BYTES_MAX: u64 = JOURNAL_BYTES_MAX / 2;
/// How old the oldest change may be that a child is owed, default: a weekend.
pub const BACKLOG_AGE_MAX: Duration = Duration::from_secs(72 * 60 * 60);
/// What a journal may be bounded to at least: some segments of the largest changes.
pub const JOURNAL_BYTES_MIN: u64 = 4 * SEGMENT_BYTES;
/// What a journal may be bounded to at most: a disk.
pub const JOURNAL_BYTES_HARD_MAX: u64 = 16 * 1024 * 1024 * 1024 * 1024;
/// Octets of changes that a lane behind the ring reads ahead, about.
pub const PAST_BYTES: usize = 1024 * 1024;
/// Children that the reply to a change tells by name; of more, only counts. A field with a thousand names would be larger
/// than many clients accept.
pub const CHILDREN_TOLD_MAX: usize = 16;
/// Changes that the sequencer numbers before it looks at the probes again.
pub const SEQUENCER_BATCH: usize = 256;
/// The sequencer looks at the probes at least this often, should nobody wake it.
pub const SEQUENCER_TICK: Duration = Duration::from_millis(250);
/// For how long after its return a child that is replaying gets help, so that it gains on its siblings; a twentieth of
/// it without a confirmation ends the help too. A change that others wait for has a deadline of this order.
pub const CATCH_UP_HELP: Duration = Duration::from_secs(10);
/// How often the sequencer looks whether a live child that held it up has moved on.
pub const SEQUENCER_STALL_TICK: Duration = Duration::from_millis(2);

const _: () = assert!(LIVE_LAG_MAX < RING_SLOTS as u64 / 2, "a child that goes live is far from being overrun");
const _: () = assert!(CHANGE_DEADLINE.as_secs() + CHANGE_GRACE.as_secs() < CHANGE_PATIENCE.as_secs());

// === journal ===

/// A segment of a journal, default: large enough that making one is rare, small enough that unlinking one is quick
/// (measured: 32 to 46 ms where the file system discards).
pub const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;
/// The smallest segment: below it checkpoints would be most of what is written.
pub const SEGMENT_BYTES_MIN: u64 = 16 * 1024;
/// The largest segment: positions are remembered, lengths have 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// What a group's journal may take, default.
pub const JOURNAL_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;
/// Segments that are held back for marks on a full disk, default.
pub const JOURNAL_RESERVE_SEGMENTS: u64 = 2;
/// Octets of a frame that is not a single large change ...
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;
/// ... and its records: a reader checks a frame whole before it believes any of it.
pub const FRAME_RECORDS_MAX: usize = 1024;
/// Encoded octets that are held before they are written: a batch may be larger than memory should be.
pub const JOURNAL_BUFFER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A change's name on record, octets; a longer one is cut.
pub const CHANGE_NAME_BYTES_MAX: usize = 256;
/// A client's key, octets.
pub const CLIENT_KEY_BYTES_MAX: usize = 255;
/// Why a child's standing is what it is, octets on record; a longer text is cut.
pub const WHY_BYTES_MAX: usize = 1024;
/// Children that are no longer configured and still known by name: should they come back, they are known to have missed
/// something.
pub const FORMER_CHILDREN_MAX: usize = 256;
/// Ranges that children had confirmed before they were attached anew. One an attach, and merged where they meet.
pub const KEPT_RANGES_MAX: usize = 1024;
/// Octets of frames between two places that are remembered, so that a reader need not walk a segment from its start.
pub const PLACE_SPACING: u64 = 256 * 1024;
/// How often the keeper tries again to make a segment on a full disk.
pub const SEGMENT_RETRY: Duration = Duration::from_secs(1);

const _: () = assert!(FRAME_BYTES_MAX <= JOURNAL_BUFFER_BYTES_MAX);
const _: () = assert!(SEGMENT_BYTES_MAX < u32::MAX as u64);
const _: () = assert!(ACTION_BYTES_MAX as u64 <= SEGMENT_BYTES / 4, "a change fits a segment with room to spare");

// === control ===

/// Connections that the kernel holds for a listener until a worker takes them; the kernel caps it at
/// `net.core.somaxconn` (4,096 since Linux 5.4).
pub const LISTEN_BACKLOG: i32 = 4096;
/// How often, and how far apart, a start tries to have a port that is in use. Measured: after a kill the listeners of an
/// io_uring are gone 5 to 13 ms later (Linux 6.18, 60 kills); this allows a hundred times that.
pub const BIND_LOOKS_MAX: u32 = 15;
/// See [`BIND_LOOKS_MAX`].
pub const BIND_PAUSE: Duration = Duration::from_millis(100);
/// How often, and how far apart, a start tries to have the state directory that another process holds: what is kept of
/// a killed process goes in the kernel's own time, as above.
pub const STATE_LOCK_LOOKS_MAX: u32 = 15;
/// See [`STATE_LOCK_LOOKS_MAX`].
pub const STATE_LOCK_PAUSE: Duration = Duration::from_millis(100);
/// Before what was decided is tried to be written again, after it could not be.
pub const BOOK_RETRY: Duration = Duration::from_secs(10);
/// Questions of clients that wait for the control thread.
pub const OWN_QUESTIONS_MAX: usize = 1024;
/// How long a client's question waits for the control thread: longer than a name may take to resolve and a disk to sync.
pub const OWN_WAIT: Duration = Duration::from_secs(30);
/// How long the answer to a removal waits until nothing is in flight to the child: its lane needs one turn.
pub const LEAVE_WAIT: Duration = Duration::from_secs(2);
/// Names of children are resolved again after this long: the usual time to live of a record that is meant to move.
pub const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);
/// How often we look whether a connect has failed, so that a child that moved is found soon.
pub const RESOLVE_LOOK: Duration = Duration::from_secs(1);
/// How long one name may take to resolve.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the control thread looks whether the workers have ended.
pub const FRONT_LOOK: Duration = Duration::from_millis(10);
/// How often the states of children are looked at for the log.
pub const WATCH_LOOK: Duration = Duration::from_millis(100);
/// After a halt, a worker that has not ended by then never will.
pub const HALT_WAIT: Duration = Duration::from_secs(5);
/// How long `antiphon status` and `antiphon child` wait for an answer.
pub const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer on the admin socket, octets: a status of a thousand children is half a megabyte.
pub const ADMIN_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A body that the demo's servers take, octets.
pub const DEMO_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Connections that a worker must be able to have. With fewer descriptors a front refuses to start: it would answer
/// nobody under the first load.
pub const CONNECTIONS_MIN: usize = 256;
