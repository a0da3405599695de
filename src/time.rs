//! Time as the pure parts are told it: nanoseconds since the process began, monotonic.
//!
//! Not the wall clock, and not read by anything that decides: [`now`] is for the edges, once a turn of a loop.

use std::ops::{Add, Sub};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment on the monotonic clock, in nanoseconds since [`Time::ZERO`]. Comparable across threads of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The beginning of the process's clock.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens: "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// A moment `nanos` after [`Time::ZERO`].
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since [`Time::ZERO`].
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long until `later`; zero if it has passed.
    #[must_use]
    pub const fn until(self, later: Self) -> Duration {
        later.since(self)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::NEVER`].
    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::ZERO`].
    fn sub(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

/// Reads the monotonic clock. About 30 ns: once a turn, not once a request.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one reader of the clock")]
pub fn now() -> Time {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let origin = *ORIGIN;
    Time::ZERO + origin.elapsed()
}

/// The time of day, in seconds since 1970: for `Date` fields and lines of diagnosis, never for a decision. A clock
/// before 1970 counts as 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The time of day, in milliseconds since 1970: to tell one start from another.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::NEVER + Duration::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::ZERO.since(Time::from_nanos(5)), Duration::ZERO);
        assert_eq!(Time::from_nanos(2).until(Time::from_nanos(5)), Duration::from_nanos(3));
    }
}
