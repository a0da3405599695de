//! Where children's names lead: resolved at start, on a period, and soon after a connect has failed.
//!
//! A name that does not resolve keeps the addresses that it had: a name server that is away must not take the
//! children with it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::front::View;
use crate::limits::{RESOLVE_INTERVAL, RESOLVE_LOOK, RESOLVE_TIMEOUT};
use crate::route::{Child, GroupTable};
use crate::sync::Arc;
use crate::time::now;

/// Resolves every child once, before anything asks for them. Those that fail are told as a warning.
pub(super) async fn resolve_all(groups: &[Arc<GroupTable>]) {
    let mut under_way = JoinSet::new();
    for child in groups.iter().flat_map(|group| group.occupied()) {
        let child = child.clone();
        under_way.spawn(async move { resolve(&child).await });
    }
    under_way.join_all().await;
}

/// Resolves names again and again; never ends.
pub async fn watch(view: &View) {
    let mut look = interval(RESOLVE_LOOK);
    let mut resolved = now();
    loop {
        look.tick().await;
        let due = now().since(resolved) >= RESOLVE_INTERVAL;
        if due {
            resolved = now();
        }
        let routes = view.routes.load_full();
        let mut under_way = JoinSet::new();
        for group in &routes.groups {
            for child in group.occupied() {
                let failed = child.addresses.take_failed();
                if (due || failed) && !is_literal(child) {
                    let (child, group) = (child.clone(), group.index);
                    under_way.spawn(async move { resolve(&child).await.then_some((group, child.index)) });
                }
            }
        }
        for (group, child) in under_way.join_all().await.into_iter().flatten() {
            view.mirrors[group].notice(child);
        }
    }
}

/// True if the child has other addresses now.
async fn resolve(child: &Child) -> bool {
    let (name, host) = (child.name(), child.host());
    let found = look_up(&host).await;
    if *child.identity().host != *host {
        // It has been moved, or removed, meanwhile.
        return false;
    }
    match found {
        Ok(list) => {
            // Name servers turn the list round; that is no news.
            let known = child.addresses.all();
            if known.len() == list.len() && list.iter().all(|address| known.contains(address)) {
                return false;
            }
            let changed = child.set_addresses(list.clone());
            if changed && !is_literal(child) {
                tracing::info!(child = %name, host = %host, addresses = ?list, "resolved");
            }
            changed
        }
        Err(why) => {
            tracing::warn!(child = %name, host = %host, why, "the child's name does not resolve; trying again");
            false
        }
    }
}

/// Where `host`, a `host:port`, leads: at least one address.
///
/// # Errors
/// Why it leads nowhere.
pub(super) async fn look_up(host: &str) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = host.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    match timeout(RESOLVE_TIMEOUT, lookup_host(host)).await {
        Ok(Ok(found)) => {
            let list: Vec<_> = found.collect();
            if list.is_empty() { Err("it has no address".to_owned()) } else { Ok(list) }
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", Duration::as_secs(&RESOLVE_TIMEOUT))),
    }
}

fn is_literal(child: &Child) -> bool {
    child.identity().host.parse::<SocketAddr>().is_ok()
}
