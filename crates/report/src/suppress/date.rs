//! Days of the calendar.

use std::time::{SystemTime, UNIX_EPOCH};

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// The day with these numbers; `None` where the month has no such day.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Date> {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match month {
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            1..=12 => 31,
            _ => 0,
        };
        (1..=days).contains(&day).then_some(Date { year, month, day })
    }

    /// Today, in UTC.
    pub fn today() -> Date {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Date::after_epoch(seconds / 86_400)
    }

    /// The day so many days after 1970-01-01. It counts in eras of 400 years, which begin on 1 March of
    /// year 0.
    pub fn after_epoch(days: u64) -> Date {
        let days = days.min(2_900_000) + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let months_since_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
        let month = if months_since_march < 10 { months_since_march + 3 } else { months_since_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Date { year: year as u16, month: month as u8, day: day as u8 }
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_the_epoch() {
        let text = |days| Date::after_epoch(days).to_string();
        assert_eq!(text(0), "1970-01-01");
        assert_eq!(text(11_016), "2000-02-29");
        assert_eq!(text(20_000), "2024-10-04");
        assert_eq!(text(20_783), "2026-11-26");
        assert_eq!(&text(u64::MAX)[..2], "99");
        assert!(Date::today() > Date::new(2024, 1, 1).unwrap());
    }

    #[test]
    fn months_have_their_days() {
        assert!(Date::new(2024, 2, 29).is_some() && Date::new(2023, 2, 29).is_none());
        assert!(Date::new(1900, 2, 29).is_none() && Date::new(2023, 4, 31).is_none());
        assert!(Date::new(2023, 13, 1).is_none() && Date::new(2023, 1, 0).is_none());
        assert!(Date::new(2023, 12, 31) < Date::new(2024, 1, 1));
    }
}
