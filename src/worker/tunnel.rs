//! After a 101: octets pass both ways, unread, until both sides have ended.
//!
//! Nothing that a client sent behind its request has been passed on before the 101 came (Pingora's CVE-2026-2833): it
//! lies in the connection's queue, and is the first to go.

use std::future::poll_fn;
use std::task::Poll;

use crate::http::Framing;
use crate::http::body::Decoder;
use crate::io::exec::Conn;
use crate::io::op::Pieces;
use crate::route::GroupTable;
use crate::worker::Worker;
use crate::worker::relay::{Encoding, Pace, Pump};
use crate::worker::serve::Next;

/// Passes octets until both sides have ended, or neither has sent any for `tunnel_idle`. `head` goes to the client first.
pub(crate) async fn run(worker: &Worker, group: &GroupTable, client: &Conn, child: &Conn, head: Pieces) -> Next {
    let idle = group.timeouts.tunnel_idle;
    // Silence is judged for both directions together, below.
    let pace = |sink| Pace { source: std::time::Duration::MAX, rate_min: 0, sink };
    let now = worker.io.now();
    let to_client = pace(worker.settings.timeouts.client_write);
    let mut down = Pump::new(Decoder::response(Framing::UntilClose), Encoding::Plain, to_client, head, now);
    let to_child = pace(group.timeouts.response_head);
    let mut up = Pump::new(Decoder::response(Framing::UntilClose), Encoding::Plain, to_child, Pieces::new(), now);
    poll_fn(|_| {
        let now = worker.io.now();
        // The end of one direction is passed on as an end; the other goes on.
        for (pump, from, to) in [(&mut down, child, client), (&mut up, client, child)] {
            if pump.is_over() {
                continue;
            }
            match pump.poll(from, to, now) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => to.shut_write(),
                Poll::Ready(Err(_)) => return Poll::Ready(Next::Cut),
            }
        }
        if down.is_over() && up.is_over() {
            return Poll::Ready(Next::Close);
        }
        let silent_since = down.progress().max(up.progress());
        worker.io.poll_sleep(silent_since + idle).map(|()| Next::Close)
    })
    .await
}
