//! The service actions of an ACI server, as far as antiphon has something to say: on the admin side only, for where
//! clients come in these names are the children's.

use super::{Refusal, show};
use crate::action::{Parameters, masked};
use crate::control::admin::Desk;
use crate::control::status::{ChildStatus, GroupStatus};
use crate::http::aci::{Element, aci_time};
use crate::http::http_date;
use crate::io::exec::Stats;
use crate::limits::REQUESTS_KEPT_MAX;
use crate::sync::{Arc, Ordering};
use crate::time;
use crate::worker::requests::Entry;
use crate::worker::stats::{Kind, WorkerStats};

/// Everything that is answered on the admin side.
const ACTIONS: [(&str, &str); 12] = [
    (
        "EngineManagement",
        "EngineAction=ShowStatus, PowerUp, PowerDown, ChangeWeight, SetPrimaryEngine, Ping, EngineAdd, EngineEdit or EngineRemove",
    ),
    ("DAHReadQueue", "what waits for each engine; Engine=N for one"),
    ("DAHFlushQueue", "drops what waits for an engine, which then needs a reseed; Engine=N or EngineName=NAME"),
    ("GetStatus", "the whole front"),
    ("GetChildren", "the engines"),
    ("GetVersion", "of antiphon"),
    ("GetPid", "of its process"),
    ("GetLicenseInfo", "that no licence is needed, and for what"),
    ("GetRequestLog", "the last requests of clients in groups of the dialect aci; Tail=N for the last N"),
    ("GetStatistics", "what is counted"),
    ("ThreadStatus", "the workers"),
    ("Help", "this"),
];

/// The data of the answer; `None`: there is no such action.
///
/// # Errors
/// What is wrong with its parameters.
pub(super) async fn answer(
    desk: &Desk,
    action: &str,
    parameters: &Parameters,
) -> Result<Option<Vec<Element>>, Refusal> {
    Ok(Some(match action {
        "getstatus" => status(desk).await,
        "getchildren" => children(desk),
        "getversion" => version(desk).await,
        "getpid" => vec![Element::text("autn:pid", std::process::id().to_string())],
        "getlicenseinfo" => license(),
        "getrequestlog" => requests(desk, tail(parameters)?),
        "threadstatus" => threads(desk),
        "getstatistics" => statistics(desk).await,
        "help" => vec![Element::of("actions", ACTIONS.iter().map(|(name, text)| help(name, text)).collect())],
        _ => return Ok(None),
    }))
}

fn help(name: &str, text: &str) -> Element {
    Element::text("action", text).with("name", name).listed()
}

/// Nothing is licensed here, so everything is: clients ask this to see what they may.
fn license() -> Vec<Element> {
    let action = |(name, _): &(&'static str, &str)| {
        let elements = vec![Element::text("autn:name", *name), Element::text("autn:licensed", "true")];
        Element::of("autn:action", elements).listed()
    };
    let section = [Element::text("autn:name", "antiphon")].into_iter().chain(ACTIONS.iter().map(action)).collect();
    vec![
        Element::of("autn:license", vec![Element::text("autn:validlicense", "true")]),
        Element::of("autn:actions", vec![Element::of("autn:section", section).listed()]),
    ]
}

/// How many requests are wanted.
fn tail(parameters: &Parameters) -> Result<usize, Refusal> {
    let Some(text) = super::one(parameters, "Tail")? else { return Ok(REQUESTS_KEPT_MAX) };
    let number = text.parse::<usize>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| Refusal::invalid(format!("Tail is a number from 1 to {REQUESTS_KEPT_MAX}")))
}

/// The last requests of all workers, the oldest first.
fn requests(desk: &Desk, count: usize) -> Vec<Element> {
    let of_worker = |(thread, stats): (usize, &Arc<WorkerStats>)| {
        stats.requests.look().into_iter().map(move |entry| (thread, entry)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = desk.view.stats.iter().enumerate().flat_map(of_worker).collect();
    // By when they ended, as each worker keeps them.
    all.sort_by_key(|(_, entry)| entry.began + entry.took);
    let from = all.len().saturating_sub(count.min(REQUESTS_KEPT_MAX));
    let (now, clock_s) = (time::now(), time::unix_s());
    let entry = |(thread, entry): &(usize, Entry)| {
        let began_s = clock_s.saturating_sub(now.since(entry.began).as_secs());
        let elements = vec![
            Element::text("autn:action", entry.action.as_str().to_ascii_uppercase()),
            Element::text("autn:request", masked(&entry.text)),
            Element::text("autn:client", entry.client.to_string()),
            Element::text("autn:time", aci_time(&http_date(began_s))),
            Element::text("autn:duration", format!("{:.2} ms", entry.took.as_secs_f64() * 1000.0)),
            Element::text("autn:status", if entry.status < 400 { "success" } else { "error" }),
            Element::text("autn:thread", thread.to_string()),
            Element::text("httpstatus", entry.status.to_string()),
        ];
        Element::of("logentry", elements).listed()
    };
    all[from..].iter().map(entry).collect()
}

fn threads(desk: &Desk) -> Vec<Element> {
    let thread = |(index, io): (usize, &Arc<Stats>)| {
        let elements = vec![
            Element::text("id", index.to_string()),
            Element::text("clients", io.clients.value().to_string()),
            Element::text("connections", io.connections.value().to_string()),
            Element::text("tasks", io.tasks.value().to_string()),
        ];
        Element::of("thread", elements).listed()
    };
    desk.view.io.iter().enumerate().map(thread).collect()
}

async fn status(desk: &Desk) -> Vec<Element> {
    let status = desk.status().await;
    let mut data = vec![
        Element::text("product", "antiphon"),
        Element::text("version", status.version),
        Element::text("state", status.state),
        Element::text("uptime", status.uptime_s.to_string()),
        Element::text("driver", status.driver),
        Element::text("workers", status.workers.to_string()),
        Element::text("changes_kept", status.changes_kept),
    ];
    data.extend(status.listeners.into_iter().map(|address| Element::text("listener", address).listed()));
    let routes = desk.view.routes.load_full();
    for (group, told) in routes.groups.iter().zip(status.groups) {
        let GroupStatus { name, dialect, ack, epoch, sequence, .. } = told;
        let mut elements = vec![
            Element::text("dialect", dialect),
            Element::text("ack", ack),
            Element::text("last_change", format!("{epoch}:{sequence}")),
        ];
        elements.extend(show::status(&desk.view, group));
        data.push(Element::of("group", elements).with("name", name).listed());
    }
    data
}

fn children(desk: &Desk) -> Vec<Element> {
    let view = &desk.view;
    let mut data = Vec::new();
    if let Some(listener) = view.listeners.first() {
        data.push(Element::text("autn:host", listener.ip().to_string()));
        data.push(Element::text("autn:port", listener.port().to_string()));
    }
    if let Some(admin) = view.admin {
        data.push(Element::text("autn:serviceport", admin.port().to_string()));
        data.push(Element::text("autn:serviceport_ssl_enabled", "false"));
    }
    let routes = view.routes.load_full();
    let children: Vec<_> = routes
        .groups
        .iter()
        .flat_map(|group| group.occupied())
        .map(|child| {
            let (host, port) = show::host_and_port(child);
            let elements = vec![
                Element::text("autn:name", &*child.name()),
                Element::text("autn:host", host),
                Element::text("autn:port", port),
            ];
            Element::of("autn:child", elements).listed()
        })
        .collect();
    let count = children.len().to_string();
    data.push(Element::of("autn:children", children).with("num_children", count).with("controlled", "false"));
    data
}

async fn version(desk: &Desk) -> Vec<Element> {
    let status = desk.status().await;
    vec![
        Element::text("autn:version", status.version),
        Element::text("autn:aciversion", "1"),
        Element::text("autn:productname", "antiphon"),
        Element::text("autn:commonname", "antiphon"),
        // What clients that look for a DAH look for.
        Element::text("autn:producttypecsv", "DAH"),
        Element::text("autn:uptime", status.uptime_s.to_string()),
    ]
}

/// Counts since the start, a child: those that a DAH's administrator knows, as far as they are counted.
async fn statistics(desk: &Desk) -> Vec<Element> {
    let view = &desk.view;
    let routes = view.routes.load_full();
    let mut data = Vec::new();
    for (group, told) in routes.groups.iter().zip(desk.status().await.groups) {
        let answered = |kind: Kind| {
            let of_worker = |stats: &Arc<WorkerStats>| {
                stats.groups[group.index].answers[kind as usize].iter().map(|count| count.value()).sum::<u64>()
            };
            view.stats.iter().map(of_worker).sum::<u64>()
        };
        let mut elements = vec![
            Element::text("reads", answered(Kind::Read).to_string()),
            Element::text("changes", answered(Kind::Change).to_string()),
        ];
        for (child, ChildStatus { requests, failures, falls, .. }) in group.occupied().zip(told.children) {
            let good = requests.saturating_sub(failures).saturating_sub(u64::from(child.in_flight()));
            let errors = child.counters.server_errors.load(Ordering::Relaxed);
            let (host, port) = show::host_and_port(child);
            elements.push(
                Element::text("engine", "")
                    .with("id", child.index.to_string())
                    .with("host", host)
                    .with("port", port)
                    .with("name", &*child.name())
                    .with("SuccessfulActions", good.saturating_sub(errors).to_string())
                    .with("FailedActions", failures.saturating_add(errors).to_string())
                    .with("DownEvents", falls.to_string())
                    .listed(),
            );
        }
        data.push(Element::of("group", elements).with("name", &*group.name).listed());
    }
    data
}
