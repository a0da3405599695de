//! Hosts, ports, paths, and the order of routes.

use super::*;
use crate::route::Policy;
use crate::route::testing::group;

fn table(routes: &[(&str, Option<&str>, usize)], default: Option<usize>) -> RouteTable {
    let routes = routes
        .iter()
        .map(|(host, path, group)| Route { host: HostPattern::new(host), path: path.map(Box::from), group: *group })
        .collect();
    let groups = (0..4).map(|index| Arc::new(GroupTable { index, ..group(Policy::Failover, &[1]) })).collect();
    RouteTable::new(vec![ListenerTable { routes, default }], groups)
}

fn routed(table: &RouteTable, host: &str, path: &str) -> Option<usize> {
    let host = Some(host.as_bytes()).filter(|host| !host.is_empty());
    table.route(0, host, path.as_bytes()).map(|group| group.index)
}

#[test]
fn hosts() {
    let table = table(&[("a.example", None, 0), ("*.a.example", None, 1), ("[2001:db8::1]", None, 2)], Some(3));
    for (host, group) in [
        ("a.example", 0),
        ("A.Example:9060", 0),
        ("a.example.", 0),
        ("a.example.:80", 0),
        ("a.example:", 0),
        ("x.a.example", 1),
        ("y.x.A.EXAMPLE:80", 1),
        (".a.example", 3),
        ("xa.example", 3),
        ("a.example.org", 3),
        ("[2001:DB8::1]", 2),
        ("[2001:db8::1]:80", 2),
        ("[2001:db8::2]:80", 3),
        ("", 3),
        (":80", 3),
        (".", 3),
    ] {
        assert_eq!(routed(&table, host, "/"), Some(group), "{host:?}");
    }
}

#[test]
fn paths_are_prefixes_of_whole_segments() {
    let table = table(&[("*", Some("/kv"), 0), ("*", Some("/tree/"), 1), ("h", Some("/"), 2)], None);
    for (host, path, group) in [
        ("", "/kv", Some(0)),
        ("", "/kv/a", Some(0)),
        ("", "/kv?x=/tree/", Some(0)),
        ("", "/kvx", None),
        ("", "/KV", None),
        ("", "/%6bv", None),
        ("", "/tree/a", Some(1)),
        ("", "/tree", None),
        ("", "", None),
        ("", "*", None),
        ("h", "/kvx", Some(2)),
        ("h", "/kv", Some(0)),
        ("h", "*", None),
    ] {
        assert_eq!(routed(&table, host, path), group, "{host:?} {path:?}");
    }
}

#[test]
fn first_match_wins() {
    let table = table(&[("*.b", Some("/x"), 2), ("*", None, 1), ("a.b", None, 0)], Some(3));
    assert_eq!(routed(&table, "a.b", "/x/y"), Some(2));
    assert_eq!(routed(&table, "a.b", "/"), Some(1));
    assert!(table.route(1, None, b"/").is_none(), "no such listener");
}

#[test]
#[should_panic(expected = "a route leads to a group")]
fn a_route_to_nowhere_is_our_mistake() {
    let _ = table(&[("*", None, 4)], None);
}

#[test]
fn a_listener_may_lead_to_one_group_by_several_ways() {
    let route = |group| Route { host: HostPattern::Any, path: None, group };
    let only = |routes: &[usize], default| {
        let table = ListenerTable { routes: routes.iter().map(|group| route(*group)).collect(), default };
        table.only_group()
    };
    assert_eq!(only(&[], None), None);
    assert_eq!(only(&[], Some(3)), Some(3));
    assert_eq!(only(&[3, 3], Some(3)), Some(3));
    assert_eq!(only(&[3, 4], None), None);
    assert_eq!(only(&[3], Some(4)), None);
}
