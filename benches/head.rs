//! What does it cost to parse a request's head and to write it for a child?
//!
//! Three heads: the smallest that a load generator sends, a search action as IDOL clients send it, and one of a
//! browser with cookies. `pieces` is the browser's head in two segments cut behind its first lines, which takes the
//! line-by-line way. Run on a quiet machine; on the shared two cores that this was written on, runs differ by 5 to
//! 10 %.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use antiphon::http::{Framing, RequestHead, ToChild, request_head};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const SMALL: &[u8] = b"GET /x HTTP/1.1\r\nHost: localhost:9060\r\n\r\n";

const ACTION: &[u8] =
    b"GET /action=Query&Text=cost%20of%20heads&MaxResults=10&Print=Fields&PrintFields=DRETITLE HTTP/1.1\r\n\
Host: search.example:9060\r\nUser-Agent: Autn-HTTPClient\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n";

const BROWSER: &[u8] = b"GET /items/17?view=full HTTP/1.1\r\nHost: www.example.com\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-GB,en;q=0.5\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\nReferer: https://www.example.com/items\r\nConnection: keep-alive\r\n\
Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=all; _ga=GA1.2.1234567890.1234567890\r\n\
Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\n\
Priority: u=0, i\r\nPragma: no-cache\r\nCache-Control: no-cache\r\n\r\n";

const TO_CHILD: ToChild<'static> = ToChild {
    target_suffix: "",
    peer: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
    tls: false,
    framing: Framing::None,
    fallback_host: "child:80",
    via: true,
    expect: false,
    upgrade: false,
    close: false,
};

fn heads(criterion: &mut Criterion) {
    for (name, octets) in [("small", SMALL), ("action", ACTION), ("browser", BROWSER)] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(octets.len() as u64));
        let mut head = RequestHead::new();
        group.bench_function("parse", |bencher| {
            bencher.iter(|| {
                head.clear();
                head.parse(black_box(octets)).expect("sound")
            });
        });
        let mut out = Vec::with_capacity(4096);
        group.bench_function("parse and rewrite", |bencher| {
            bencher.iter(|| {
                head.clear();
                head.parse(black_box(octets)).expect("sound");
                out.clear();
                request_head(&mut out, octets, &head, black_box(&TO_CHILD));
                out.len()
            });
        });
        group.finish();
    }
    criterion.bench_function("pieces/parse", |bencher| {
        let mut head = RequestHead::new();
        bencher.iter(|| {
            head.clear();
            head.parse(black_box(&BROWSER[..200])).expect("sound so far");
            head.parse(black_box(BROWSER)).expect("sound")
        });
    });
}

criterion_group!(benches, heads);
criterion_main!(benches);
