//! Points in time, for people.

use guardrail_report::suppress::Date;
use std::time::{SystemTime, UNIX_EPOCH};

/// Such as `2026-11-30 15:23`, in UTC; a time before 1970 is its beginning.
pub(crate) fn minute(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let minutes = seconds / 60 % 1440;
    format!("{} {:02}:{:02}", Date::after_epoch(seconds / 86_400), minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn minutes_are_those_of_utc() {
        let text = |seconds| minute(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(text(0), "1970-01-01 00:00");
        assert_eq!(text(1_796_051_039), "2026-11-30 15:03");
        assert_eq!(minute(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01 00:00");
    }
}
