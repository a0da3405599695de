//! `[group.NAME.probe]`: what a child is asked and what it must answer.

use toml::Spanned;

use super::error::{Problems, Wrong};
use super::settings::TIMEOUT;
use super::table::Table;
use super::values::{Spelled, duration, integer, kind, plain, text};
use crate::action::Dialect;
use crate::probe::{Expect, Options, Request};

/// What an ACI server answers without doing any work.
const ACI_REQUEST: &str = "GET /action=GetPid";
const ACI_BODY: &str = "*SUCCESS*";
const STATUS_DEFAULT: &str = "200";

/// The options of a group's probes: those of the dialect, where the file says nothing else.
pub(super) fn options(table: Option<Table<'_>>, dialect: Dialect, problems: &mut Problems) -> Options {
    let mut options = by_dialect(dialect);
    let Some(mut table) = table else { return options };

    if let Some(request) = table.optional(problems, "request", text) {
        match request.get_ref().parse::<Request>() {
            Ok(request) => {
                // What must be answered to another request is another question.
                if request != options.request {
                    options.expect = Expect::default();
                }
                options.request = request;
            }
            Err(error) => {
                let message = format!("{:?} is not a probe: {error}", request.get_ref());
                problems.push(request.span(), Wrong::new(message, "write \"tcp\", or as in \"GET /health\""));
            }
        }
    }
    if options.request == Request::Tcp {
        let advice = "remove `expect`, or write a request: `request = \"GET /health\"`";
        table.misfit(problems, "expect", "a connect alone has no answer to expect", advice);
    } else if let Some(expect) = expect(&mut table, problems) {
        options.expect = expect;
    }
    options.interval_up = table.or(problems, "interval_up", options.interval_up, duration(TIMEOUT));
    options.interval_down = table.or(problems, "interval_down", options.interval_down, duration(TIMEOUT));
    let timeout = table.optional(problems, "timeout", duration(TIMEOUT));
    let place = timeout.as_ref().map_or_else(|| table.span(), Spanned::span);
    options.timeout = timeout.map_or(options.timeout, Spanned::into_inner);
    if options.timeout >= options.interval_up {
        let (timeout, interval) = (Spelled(options.timeout), Spelled(options.interval_up));
        let message = format!("a probe may take {timeout}, and the next one is due after {interval}");
        problems.push(place, Wrong::new(message, "make `timeout` shorter than `interval_up`"));
    }
    options.backoff_max = options.backoff_max.max(options.interval_down);
    options.fall = table.or(problems, "fall", u64::from(options.fall), integer(1..=15)) as u8;
    options.rise = table.or(problems, "rise", u64::from(options.rise), integer(1..=15)) as u8;
    table.finish(problems);
    options
}

fn by_dialect(dialect: Dialect) -> Options {
    let mut options = Options::default();
    if dialect == Dialect::Aci {
        options.request = ACI_REQUEST.parse().expect("the built-in probe is one");
        options.expect = Expect::parse(STATUS_DEFAULT, Some(ACI_BODY)).expect("the built-in expectation is one");
    }
    options
}

/// `expect = { status = "200", body = "*SUCCESS*" }`, either or both.
fn expect(table: &mut Table<'_>, problems: &mut Problems) -> Option<Expect> {
    let title = format!("{}.expect]", table.title().trim_end_matches(']'));
    let mut table = table.table(problems, "expect", title)?;
    let status = table.optional(problems, "status", |value| match value.as_integer() {
        Some(integer) => Ok(integer.as_str()),
        None => text(value).map_err(|_| {
            Wrong::new(format!("{} where a status belongs", kind(value)), "write \"200\", \"2xx\" or \"2xx, 304\"")
        }),
    });
    let body = table.optional(problems, "body", plain).map(Spanned::into_inner);
    let span = status.as_ref().map_or_else(|| table.span(), Spanned::span);
    table.finish(problems);
    let status = status.map_or(STATUS_DEFAULT, Spanned::into_inner);
    Expect::parse(status, body)
        .map_err(|error| problems.push(span, Wrong::new(format!("{status:?} is not a status"), error.to_string())))
        .ok()
}
