//! antiphon: the front door of a set of identical HTTP servers.
//!
//! It spreads reads over the servers, sends every state-changing action to *all* of them in one order, keeps what a
//! server that is away has missed, and lets it serve reads again only when it has caught up.
//!
//! # One idea: a pure middle, thin edges
//!
//! Whatever decides (is this head lawful, which class is this action, which child, what has a lane to do next, is a
//! child up) is a plain function over octets and values that is *told* the time. Whatever touches the world is small
//! and at the rim. So the middle is tested with tables and seeds, and the rim against the real kernel.
//!
//! # A second: one ring, many cursors
//!
//! A change gets a sequence and stands in its group's [ring](mirror::ring). Every child has a lane that reads the ring
//! with a cursor of its own. What a child has missed is the interval between its cursor and the head: there is no
//! other queue, so "queued first, then new" needs no rule. A reader cannot skip.
//!
//! # The map
//!
//! Imports point down; a test holds the arrows.
//!
//! | layer | modules | what they know |
//! |---|---|---|
//! | entry | `main`, [`cli`], [`demo`] | words, exit codes |
//! | assembly | [`worker`], [`control`] | everything below; threads |
//! | edges | [`io`], [`journal::segment`] | the kernel, the disk |
//! | pure | [`config`], [`http`], [`action`], [`route`], [`probe`], [`mirror`], [`journal`] | octets, values, `now` |
//! | ground | [`limits`], [`error`], [`sync`], [`time`] | nothing |
//!
//! # Two straight lines
//!
//! A request ([`worker`]): accept → head → action → (read: child → connection → forward | change: admit →
//! acknowledgements) → reply → observe → next.
//!
//! Delivery (a lane): next entry after the cursor → connection → send → judge the reply → confirm.
//!
//! # Threads, and how they meet
//!
//! A worker is one core's thread: a driver (io_uring or epoll), a listener, an executor; nothing in it is shared. The
//! sequencer is a thread that numbers changes and, with a journal, puts them on record before anybody sees them; then each
//! group has its own, with a reader of the past for lanes that are behind the ring, and a keeper that makes segments
//! ahead. Control is one thread with a tokio runtime: admin, names, signals.
//! Data crosses in four ways only: a snapshot swapped by control; a worker's submission queue to the sequencer; the
//! ring, with the outcome table of each change in it; the padded atomics of a child, with what others leave there for its
//! lane.
//!
//! # What is deliberately absent
//!
//! No lock and no system clock call on a request's line. No child is sent what is not durable, where there is a journal. No copy of a read's body in user space. No body octet of a
//! read is re-encoded. No guard of a snapshot is held across an await. No operation that was given up is followed by
//! another on its connection. No sequence is used twice. No child sees change *n*+1 before *n*. No reply that has
//! begun is tried again. No HTTP/2, TLS, caching or scripting yet.
//!
//! # Words, one meaning each
//!
//! *worker*: one core's thread. *driver*: an io_uring or epoll instance. *ring*: the broadcast ring of a group, never a
//! driver. *child*: a server behind us, in a *place* of its group that it keeps; a place where nobody stands is *vacant*. *group*: children that must stay identical. *primary*: the child that leads its
//! group under `failover`, and whose answer to a change is returned. *front*: one of our instances as a client sees it.
//! *read*, *change*, *live change*: the classes of an action. *sequence*: numbers a change within an epoch. *cursor*:
//! how far a reader of the ring has confirmed. *lane*: the one task that sends changes to a child. *ticket*: proof of
//! admission. *level*: whose answers the client of a change waits for. *fate*: what became of a change at a child.
//! *floor*: the sequence that a child must have applied to serve a read. *gathering*: the time in which the children get
//! ready for a live change. *replay*: a lane reading behind the head. *doubt*: a change that a child may have carried out or
//! not, and that may not be sent again. *journal*: the durable record of a group's changes, in *segments*. *slot*: how far a
//! child has come, as its lane writes it down. *mark*: what goes on record beside changes. *probe*: a question about a
//! child's health. *snapshot*: the routing table as of now. *decision*: what an operator, or failover, has made otherwise
//! than the configuration has it; the *book* holds all of them. *pool*: idle connections to a child.
//! *cost*: what an action would cost on a child, in predicted microseconds. *token*: what the child
//! that starts an asynchronous action answers with; that child is its *issuer*. *chunk*: received octets where the kernel
//! put them.
#![deny(unsafe_code)]

pub mod action;
pub mod cli;
pub mod config;
pub mod control;
pub mod crash;
pub mod demo;
pub mod error;
pub mod http;
pub mod io;
pub mod journal;
pub mod limits;
pub mod mirror;
pub mod probe;
pub mod route;
pub mod sync;
pub mod time;
pub mod worker;
