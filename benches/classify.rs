//! What does it cost to tell what a request is? Both dialects, their built-in sets, requests as they come.
//!
//! Read beside the rest of a small request, which is some ten microseconds of CPU: the classes must not show there.
//! Noise on a shared machine is about 5 %.

use std::hint::black_box;

use antiphon::action::{Asked, Class, Dialect, Rule, RuleSet, Rules};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const FIELDS: [(&[u8], &[u8]); 6] = [
    (b"Host", b"search.example:9060"),
    (b"User-Agent", b"curl/8.5.0"),
    (b"Accept", b"*/*"),
    (b"Accept-Encoding", b"gzip, deflate"),
    (b"Connection", b"keep-alive"),
    (b"Cookie", b"session=0123456789abcdef"),
];

fn rules(dialect: Dialect, set: RuleSet, user: Vec<Rule>) -> Rules {
    Rules::new(dialect, set, user, Class::Change).expect("rules")
}

fn classify(c: &mut Criterion) {
    let idol = rules(Dialect::Aci, RuleSet::Idol, Vec::new());
    let http = rules(Dialect::Http, RuleSet::Http, Vec::new());
    let paths =
        rules(Dialect::Http, RuleSet::Http, vec![Rule::http(&["POST"], "/items/*/search", Class::Read).expect("rule")]);
    let long = format!("/action=Query&Text={}&DatabaseMatch=news&MaxResults=10", "word+".repeat(200));
    let mut group = c.benchmark_group("classify");
    for (name, rules, target) in [
        ("aci/query", &idol, "/action=Query&Text=antiphon&DatabaseMatch=news&MaxResults=10"),
        ("aci/query_1k", &idol, &*long),
        ("aci/encoded_name", &idol, "/?%61ction=Query&Text=antiphon"),
        ("aci/last_rule", &idol, "/action=TokenManagement&TokenAction=expire"),
        ("aci/unknown", &idol, "/action=FooBar&x=y"),
        ("http/get", &http, "/items/42?fields=name"),
        ("http/get_with_path_rule", &paths, "/items/42?fields=name"),
        ("http/odd_path", &paths, "/items/a%20b/./c"),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let asked = Asked::of(b"GET", black_box(target.as_bytes()), false, FIELDS.into_iter());
                black_box(rules.classify(&asked)).is_ok()
            });
        });
    }
    let form = "Text=".to_owned() + &"word+".repeat(13_000) + "&action=Query";
    group.throughput(Throughput::Bytes(form.len() as u64));
    group.bench_function("aci/form_64k", |b| {
        let asked = Asked::bare(b"POST", b"/").with_body(form.as_bytes());
        b.iter(|| black_box(idol.classify(black_box(&asked))).is_ok());
    });
    let lines = "x\r\n".repeat(21_000);
    group.throughput(Throughput::Bytes(lines.len() as u64));
    group.bench_function("aci/lines_64k", |b| {
        let asked = Asked::bare(b"POST", b"/action=Query").with_body(lines.as_bytes());
        b.iter(|| black_box(idol.classify(black_box(&asked))).is_ok());
    });
    group.finish();
}

criterion_group!(benches, classify);
criterion_main!(benches);
