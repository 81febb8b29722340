//! A place in the text of a program, and what may be there.

use std::fmt;

/// What is wrong with a program, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    line: usize,
    column: usize,
    why: String,
}

impl Wrong {
    /// The line and the column, with a colon between them.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.line, self.column)
    }

    /// What is wrong.
    pub(super) fn why(self) -> String {
        self.why
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.why)
    }
}

pub(super) type Result<T> = std::result::Result<T, Wrong>;

/// A place in a line. Lines and columns count from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    line: usize,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The beginning of a line.
    pub(super) fn new(text: &'a str, line: usize) -> Cursor<'a> {
        Cursor { text, line, at: 0 }
    }

    /// What is wrong here.
    pub(super) fn wrong(&self, why: impl Into<String>) -> Wrong {
        let column = self.text[..self.at].chars().count() + 1;
        Wrong { line: self.line, column, why: why.into() }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
    }

    /// True at the end of the line.
    pub(super) fn ends(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }

    /// The next character behind blanks, which stays.
    pub(super) fn peek(&mut self) -> Option<char> {
        self.skip_blanks();
        self.rest().chars().next()
    }

    /// Takes the text if it follows.
    pub(super) fn takes(&mut self, text: &str) -> bool {
        self.skip_blanks();
        let follows = self.rest().starts_with(text);
        if follows {
            self.at += text.len();
        }
        follows
    }

    /// Takes the text, which has to follow.
    pub(super) fn take(&mut self, text: &str) -> Result<()> {
        match self.takes(text) {
            true => Ok(()),
            false => Err(self.wrong(format!("expected '{text}'"))),
        }
    }

    /// Takes a separator: true where another element follows, false at the end of the list.
    pub(super) fn goes_on(&mut self, end: &str) -> Result<bool> {
        if self.takes(",") {
            return Ok(true);
        }
        match self.takes(end) {
            true => Ok(false),
            false => Err(self.wrong(format!("expected ',' or '{end}'"))),
        }
    }

    /// Takes a word of letters, digits, `_` and `$`; it may be empty.
    pub(super) fn word(&mut self) -> &'a str {
        self.skip_blanks();
        let rest = self.rest();
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$').unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Takes a number, in decimal or behind `0x` in hexadecimal.
    pub(super) fn number(&mut self) -> Result<u64> {
        self.skip_blanks();
        let start = *self;
        let word = self.word();
        let number = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        number.map_err(|_| start.wrong("expected a number of at most 64 bits, such as 0x10"))
    }

    /// Takes everything up to an end, which is taken as well.
    pub(super) fn until(&mut self, end: char) -> Result<&'a str> {
        let rest = self.rest();
        let Some(length) = rest.find(end) else { return Err(self.wrong(format!("no {end} follows"))) };
        self.at += length + end.len_utf8();
        Ok(&rest[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_characters() {
        let mut cursor = Cursor::new("é  0x1F, 7 x", 3);
        cursor.at = 'é'.len_utf8();
        assert_eq!(cursor.number(), Ok(31));
        assert_eq!(cursor.goes_on(")"), Ok(true));
        assert_eq!(cursor.number(), Ok(7));
        assert_eq!(cursor.goes_on(")").unwrap_err().to_string(), "3:12: expected ',' or ')'");
        assert!(cursor.number().unwrap_err().to_string().starts_with("3:12: expected a number"));
        assert!(Cursor::new("0x10000000000000000", 1).number().is_err());
        assert!(Cursor::new("-1", 1).number().is_err() && Cursor::new("", 1).number().is_err());
    }
}
