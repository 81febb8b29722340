//! Source text, with comments and literals apart from code.

/// Whether a file says in its first line that a program wrote it.
pub fn is_generated(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.starts_with("//! Generated from"))
}

/// A string literal: its line, from 1, and what stands between its quotes, with escapes as they are.
pub struct Literal {
    pub line: usize,
    pub text: String,
}

/// Code with comments and literals blanked, line for line as it was, and the string literals.
pub struct Stripped {
    pub code: String,
    pub literals: Vec<Literal>,
}

/// Blanks comments, strings and characters of Rust or C code. Lines stay where they were.
pub fn strip(text: &str) -> Stripped {
    let mut scanner = Scanner { chars: text.chars().collect(), at: 0, line: 1, code: String::new() };
    let mut literals = Vec::new();
    while let Some(c) = scanner.peek(0) {
        match (c, scanner.peek(1)) {
            ('/', Some('/')) => scanner.blank_while(|c| c != '\n'),
            ('/', Some('*')) => scanner.block_comment(),
            ('"', _) => literals.push(scanner.string(None)),
            ('r', _) if scanner.raw_hashes().is_some() && !scanner.after_word() => {
                let hashes = scanner.raw_hashes();
                literals.push(scanner.string(hashes));
            }
            ('\'', _) => scanner.quote(),
            _ => scanner.keep(),
        }
    }
    Stripped { code: scanner.code, literals }
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    line: usize,
    code: String,
}

impl Scanner {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn keep(&mut self) {
        self.code.push(self.chars[self.at]);
        self.advance();
    }

    fn blank(&mut self) {
        self.code.push(if self.chars[self.at] == '\n' { '\n' } else { ' ' });
        self.advance();
    }

    fn advance(&mut self) {
        self.line += usize::from(self.chars[self.at] == '\n');
        self.at += 1;
    }

    fn blank_while(&mut self, good: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&good) {
            self.blank();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.peek(0).is_some() {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                _ => {
                    self.blank();
                    continue;
                }
            }
            self.blank();
            self.blank();
            if depth == 0 {
                break;
            }
        }
    }

    /// True inside of a word, where an `r` begins no raw string.
    fn after_word(&self) -> bool {
        let before = self.at.checked_sub(1).map(|at| self.chars[at]);
        before.is_some_and(|c| c.is_alphanumeric() || c == '_') && before != Some('b')
    }

    /// The number of hashes of a raw string that begins here.
    fn raw_hashes(&self) -> Option<usize> {
        let hashes = self.chars[self.at + 1..].iter().take_while(|&&c| c == '#').count();
        (self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    fn string(&mut self, raw: Option<usize>) -> Literal {
        let line = self.line;
        for _ in 0..raw.map_or(1, |hashes| hashes + 2) {
            self.blank();
        }
        let mut text = String::new();
        while let Some(c) = self.peek(0) {
            let hashes = raw.unwrap_or(0);
            if c == '"' && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                (0..=hashes).for_each(|_| self.blank());
                break;
            }
            text.push(c);
            self.blank();
            if let (Some(escaped), '\\', None) = (self.peek(0), c, raw) {
                text.push(escaped);
                self.blank();
            }
        }
        Literal { line, text }
    }

    /// A character, or the quote of a lifetime.
    fn quote(&mut self) {
        match (self.peek(1), self.peek(2)) {
            (Some('\\'), _) => {
                (0..3)
                    .filter(|_| self.at < self.chars.len())
                    .collect::<Vec<_>>()
                    .iter()
                    .for_each(|_| self.blank());
                self.blank_while(|c| c != '\'');
                if self.peek(0).is_some() {
                    self.blank();
                }
            }
            (Some(_), Some('\'')) => (0..3).for_each(|_| self.blank()),
            _ => self.keep(),
        }
    }
}

/// The offset behind the brace that closes the one at `open`.
pub fn close(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return open + at + 1;
        }
    }
    code.len()
}

/// Blanks items under `#[cfg(test)]`, in stripped code; gives the names of the modules among them that are in files of their own.
pub fn without_tests(code: &str) -> (String, Vec<String>) {
    let (mut kept, mut modules, mut rest) = (String::new(), Vec::new(), code);
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        let item = &rest[at..];
        let ends = |c| item.find(c).unwrap_or(item.len());
        let end =
            if ends('{') < ends(';') { close(item, ends('{')) } else { (ends(';') + 1).min(item.len()) };
        let words = item[..end].trim_end_matches(';').split_whitespace().collect::<Vec<_>>();
        if let Some(at) = words.iter().position(|word| *word == "mod") {
            modules.extend(words.get(at + 1).map(|name| (*name).to_owned()));
        }
        kept.extend(item[..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &item[end..];
    }
    kept.push_str(rest);
    (kept, modules)
}

#[test]
fn comments_and_literals_are_blanked() {
    let stripped = strip("a /* \"x\" */ \"b\\\"c\" // d\n'\"' 'e 'x' r#\"f\"g\"# h");
    let words: Vec<&str> = stripped.code.split_whitespace().collect();
    assert_eq!(words, ["a", "'e", "h"]);
    let literals: Vec<(usize, &str)> =
        stripped.literals.iter().map(|it| (it.line, it.text.as_str())).collect();
    assert_eq!(literals, [(1, "b\\\"c"), (2, "f\"g")]);
}

#[test]
fn items_of_tests_are_left_out() {
    let (code, modules) = without_tests("a\n#[cfg(test)]\nmod tests;\nb #[cfg(test)] mod more { x {} } c");
    assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(modules, ["tests", "more"]);
}
