//! `/metrics`: what is counted, in the Prometheus text format, summed over the workers when it is asked for.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::front::View;
use crate::io::exec::{Counter, Stats};
use crate::route::cost::Label;
use crate::route::{Child, GroupTable, Judged, Policy, Shown};
use crate::sync::{Arc, Ordering};
use crate::time;
use crate::worker::stats::{Count, DURATION_EDGES_US, Kind, Told, WorkerStats};

/// The content type of [`text`].
pub use prometheus_text::CONTENT_TYPE;

/// All metrics of the front, as of now.
#[must_use]
pub fn text(view: &Arc<View>) -> String {
    let mut registry = Registry::with_prefix("antiphon");
    registry.register_collector(Box::new(Front(view.clone())));
    let mut text = String::new();
    // Writing to a String does not fail; an encoder that refuses a name would be our own mistake, and shows in a test.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

struct Front(Arc<View>);

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Front")
    }
}

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

impl Collector for Front {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(&mut encoder);
        self.process(&mut out)?;
        self.requests(&mut out)?;
        self.children(&mut out)?;
        self.costs(&mut out)?;
        self.changes(&mut out)
    }
}

/// Writes one family after the other.
struct Out<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl Out<'_, '_> {
    fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

impl Front {
    fn sum(&self, count: impl Fn(&WorkerStats) -> &Count) -> u64 {
        self.0.stats.iter().map(|stats| count(stats).value()).sum()
    }

    fn process(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let view = &self.0;
        out.gauges("build_info", "The version", [([("version", env!("CARGO_PKG_VERSION"))], 1.0)])?;
        out.gauges("io_backend_info", "What moves octets", [([("backend", view.driver)], 1.0)])?;
        let uptime = time::now().since(view.started).as_secs_f64();
        out.gauges("uptime_seconds", "Since the front started", [(NONE, uptime)])?;
        let of_io = |counter: fn(&Stats) -> &Counter| view.io.iter().map(|io| counter(io).value()).sum::<u64>();
        let gauges: [Family<fn(&Stats) -> &Counter>; 2] = [
            ("connections", "Connections open, clients and children", |io| &io.connections),
            ("clients", "Connections of clients", |io| &io.clients),
        ];
        for (name, help, counter) in gauges {
            out.gauges(name, help, [(NONE, of_io(counter) as f64)])?;
        }
        let counters: [Family<fn(&Stats) -> &Counter>; 5] = [
            ("accepted", "Connections accepted", |io| &io.accepted),
            ("accept_failures", "Accepts that failed", |io| &io.accept_failures),
            ("receives_starved", "Receives that found no free buffer", |io| &io.starved),
            ("receives_paused", "Receives stopped because nobody took what had come", |io| &io.paused),
            ("turns", "Turns of the workers' loops", |io| &io.turns),
        ];
        for (name, help, counter) in counters {
            out.counters(name, help, [(NONE, of_io(counter))])?;
        }
        let copied = self.sum(|stats| &stats.copied_bytes);
        out.counters("copied_bytes", "Octets copied because buffers were scarce", [(NONE, copied)])?;
        out.gauges("held_bytes", "Octets of bodies held whole", [(NONE, view.budget.bytes() as f64)])
    }

    fn requests(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let groups = self.groups();
        let mut answers = Vec::new();
        for group in &groups {
            for kind in Kind::ALL {
                for (digit, class) in CLASSES.iter().enumerate() {
                    let count = self.sum(|stats| &stats.groups[group.index].answers[kind as usize][digit]);
                    if count > 0 || digit == 2 {
                        let labels = [("group", &*group.name), ("kind", kind.name()), ("code", class)];
                        answers.push((labels, count));
                    }
                }
            }
        }
        out.counters("requests", "Answers sent to clients", answers)?;
        let per_group = |count: fn(&WorkerStats, usize) -> &Count| {
            groups.iter().map(move |group| ([("group", &*group.name)], self.sum(|stats| count(stats, group.index))))
        };
        let retries = per_group(|stats, group| &stats.groups[group].retries).collect::<Vec<_>>();
        out.counters("retries", "Reads sent again, to another child or on another connection", retries)?;
        let cut = per_group(|stats, group| &stats.groups[group].cut).collect::<Vec<_>>();
        out.counters("answers_cut", "Answers that had begun and could not be ended", cut)?;
        let waits = per_group(|stats, group| &stats.groups[group].gate_waits).collect::<Vec<_>>();
        out.counters("reads_gated", "Reads that waited for a child that had come far enough", waits)?;
        let refusals = per_group(|stats, group| &stats.groups[group].gate_refusals).collect::<Vec<_>>();
        out.counters("reads_gate_refused", "Of these, refused because none came far enough in time", refusals)?;
        let mut faults = std::collections::BTreeMap::new();
        for (code, count) in self.0.stats.iter().flat_map(|stats| stats.faults()) {
            *faults.entry(code).or_insert(0) += count;
        }
        out.counters(
            "faults",
            "Requests answered by us in place of a child",
            faults.into_iter().map(|(c, n)| ([("code", c)], n)),
        )?;
        self.durations(out, &groups)
    }

    fn durations(&self, out: &mut Out<'_, '_>, groups: &[Arc<GroupTable>]) -> fmt::Result {
        let help = "From a request's head to the last octet of its answer";
        let mut family = out.0.encode_descriptor("request_duration_seconds", help, None, MetricType::Histogram)?;
        for group in groups {
            for kind in Kind::ALL {
                let edges = DURATION_EDGES_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
                let bucket =
                    |at: usize| self.sum(|stats| &stats.groups[group.index].durations[kind as usize].buckets[at]);
                let buckets: Vec<(f64, u64)> = edges.enumerate().map(|(at, edge)| (edge, bucket(at))).collect();
                let count = buckets.iter().map(|(_, count)| count).sum();
                let sum = self.sum(|stats| &stats.groups[group.index].durations[kind as usize].sum_us) as f64 / 1e6;
                let labels: Labels<'_, 2> = [("group", &group.name), ("kind", kind.name())];
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }

    fn children(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let groups = self.groups();
        let all: Vec<(&GroupTable, &Child, Arc<str>)> =
            groups.iter().flat_map(|group| group.occupied().map(|child| (&**group, &**child, child.name()))).collect();
        let mut states = Vec::new();
        for (group, child, name) in &all {
            for state in Shown::ALL {
                let is = f64::from(u8::from(child.shown() == state));
                states.push(([("group", &*group.name), ("child", &**name), ("state", state.name())], is));
            }
        }
        out.gauges("child_state", "1 for the state that the child is in", states)?;
        let gauges: [Family<fn(&View, &GroupTable, &Child) -> f64>; 4] = [
            ("child_inflight", "Reads under way", |_, _, child| f64::from(child.in_flight())),
            ("child_weight", "Its share of reads", |_, _, child| f64::from(child.weight())),
            ("child_applied_seq", "The last change it has confirmed", |_, _, child| child.applied() as f64),
            ("replay_pending_entries", "Changes it has not confirmed", |view, group, child| {
                view.mirrors[group.index].lag(child.index) as f64
            }),
        ];
        for (name, help, value) in gauges {
            let values =
                all.iter().map(|(group, child, name)| (child_labels(group, name), value(&self.0, group, child)));
            out.gauges(name, help, values)?;
        }
        let counters: [Family<fn(&Child) -> u64>; 6] = [
            ("child_requests", "Reads sent to it", |child| child.counters.requests.load(Ordering::Relaxed)),
            ("child_failures", "Reads it did not answer", |child| child.counters.failures.load(Ordering::Relaxed)),
            ("child_server_errors", "Reads it answered with 5xx", |child| {
                child.counters.server_errors.load(Ordering::Relaxed)
            }),
            ("child_probes_good", "Probes answered as expected", |child| {
                child.counters.probes_good.load(Ordering::Relaxed)
            }),
            ("child_probes_bad", "Probes not answered so", |child| child.counters.probes_bad.load(Ordering::Relaxed)),
            ("child_falls", "Times it went down", |child| child.counters.falls.load(Ordering::Relaxed)),
        ];
        for (name, help, value) in counters {
            out.counters(name, help, all.iter().map(|(group, child, name)| (child_labels(group, name), value(child))))?;
        }
        Ok(())
    }

    /// Of the groups in which costs are predicted.
    fn costs(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let groups = self.groups();
        let mut all = Vec::new();
        for group in groups.iter().filter(|group| group.policy == Policy::Predictive) {
            // What an action of no known kind would cost: the mean of all.
            let children = group.explain(&Label::NONE, time::now()).children;
            all.extend(children.into_iter().map(|child| (group, group.children[child.index].name(), child)));
        }
        let gauges: [Family<fn(&Judged) -> f64>; 3] = [
            ("child_predicted_cost_seconds", "What a mean action would cost there now", |child| {
                child.terms.cost_us() / 1e6
            }),
            ("child_cost_error_ratio", "By what factor predicted latencies are off, geometric mean", |child| {
                child.seen.error_ratio
            }),
            ("child_slowness_ratio", "How slow it is, times the median child", |child| child.seen.slowness),
        ];
        for (name, help, value) in gauges {
            let values = all.iter().map(|(group, name, child)| (child_labels(group, name), value(child)));
            out.gauges(name, help, values)?;
        }
        Ok(())
    }

    fn changes(&self, out: &mut Out<'_, '_>) -> fmt::Result {
        let groups = self.groups();
        let gauges: [Family<fn(&View, &GroupTable) -> f64>; 4] = [
            ("last_seq", "The sequence that was given last", |view, group| {
                view.mirrors[group.index].last_sequence() as f64
            }),
            (
                "acknowledged_seq",
                "Reads are served only by children at or past this, or behind it by what read_gate allows",
                |_, group| group.shared.floor() as f64,
            ),
            ("epoch", "The epoch of the sequences", |view, group| view.mirrors[group.index].epoch() as f64),
            ("ring_bytes", "Octets of the changes in memory", |view, group| {
                view.mirrors[group.index].ring().bytes() as f64
            }),
        ];
        for (name, help, value) in gauges {
            out.gauges(name, help, groups.iter().map(|group| ([("group", &*group.name)], value(&self.0, group))))?;
        }
        let mut told = Vec::new();
        for group in &groups {
            let level = self.0.mirrors[group.index].level().as_str();
            for result in Told::ALL {
                let count = self.sum(|stats| &stats.groups[group.index].changes[result as usize]);
                if count > 0 || result == Told::Answered {
                    told.push(([("group", &*group.name), ("ack", level), ("result", result.name())], count));
                }
            }
        }
        out.counters("changes", "Changes, by what their clients were told", told)
    }

    fn groups(&self) -> Vec<Arc<GroupTable>> {
        self.0.routes.load().groups.clone()
    }
}

fn child_labels<'a>(group: &'a GroupTable, child: &'a str) -> Labels<'a, 2> {
    [("group", &group.name), ("child", child)]
}

/// A family of metrics: its name, its help text, and how its value is had.
type Family<F> = (&'static str, &'static str, F);

const NONE: Labels<'static, 0> = [];
const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
