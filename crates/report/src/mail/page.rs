//! Text of bounded width, as mails have it.

/// Most columns of a line.
pub const WIDTH: usize = 76;
/// Columns before what continues an item.
const HANGING: usize = 6;

/// The lines of a mail.
#[derive(Debug, Default)]
pub struct Page {
    lines: Vec<String>,
}

impl Page {
    /// A line as it is, broken only where it is too long.
    pub fn line(&mut self, text: &str) {
        self.wrapped("", " ", text);
    }

    /// Paragraphs of running text.
    pub fn text(&mut self, text: &str) {
        for line in text.lines() {
            self.wrapped("", "", line);
        }
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.lines.push(String::new());
    }

    /// The title of a part, after an empty line.
    pub fn heading(&mut self, text: &str) {
        self.gap();
        self.wrapped("", "", &format!("{text}:"));
    }

    /// A name and its value.
    pub fn field(&mut self, name: &str, value: &str) {
        self.wrapped("", &" ".repeat(10), &format!("{:10}{value}", format!("{name}:")));
    }

    /// A line of a call trace.
    pub fn item(&mut self, text: &str) {
        self.wrapped("  ", &" ".repeat(HANGING), text);
    }

    /// A command for a shell: where it is broken, the shell goes on. An option stays with its value.
    pub fn command(&mut self, words: &[String]) {
        let mut parts: Vec<String> = Vec::new();
        let mut option = false;
        for word in words {
            match parts.last_mut().filter(|_| option && !word.starts_with("--")) {
                Some(part) => *part += &format!(" {}", quoted(word)),
                None => parts.push(quoted(word)),
            }
            option = word.starts_with("--");
        }
        let mut line = "  ".to_owned();
        for (i, word) in parts.iter().enumerate() {
            let room = WIDTH.saturating_sub(line.chars().count() + 2);
            if i > 0 && word.chars().count() + 1 > room {
                self.lines.push(format!("{line} \\"));
                line = " ".repeat(HANGING) + word;
            } else {
                line += if i == 0 { "" } else { " " };
                line += word;
            }
        }
        self.lines.push(line);
    }

    /// The text with a line feed at the end of each line.
    pub fn finish(self) -> String {
        self.lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    fn wrapped(&mut self, first: &str, rest: &str, text: &str) {
        self.lines.extend(wrapped(first, rest, text, WIDTH));
    }
}

/// Breaks a text between words; a word that is too long for a line is broken itself.
pub fn wrapped(first: &str, rest: &str, text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line, mut empty) = (Vec::new(), first.to_owned(), true);
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        let used = line.chars().count() + usize::from(!empty);
        if !empty && used + word.len() > width {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        loop {
            let room = width.saturating_sub(line.chars().count()).max(1);
            if word.len() <= room {
                break;
            }
            line.extend(word.drain(..room));
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
        }
        line.extend(word);
        empty = false;
    }
    lines.push(line);
    lines
}

/// The word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_too_long() {
        let long = "x".repeat(200);
        for text in
            ["a b c", "one two three four five six seven eight nine ten eleven twelve thirteen", &long]
        {
            let mut page = Page::default();
            page.text(text);
            page.item(&format!("{text} {text}"));
            page.field("Kernel", text);
            page.heading(text);
            let text = page.finish();
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        }
    }

    #[test]
    fn a_command_that_is_broken_is_one_for_the_shell() {
        let mut page = Page::default();
        let words = (0..20).map(|n| format!("--set=WORD_{n}")).chain(["it's $HOME".to_owned()]);
        page.command(&words.collect::<Vec<_>>());
        let text = page.finish();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().rev().skip(1).all(|line| line.ends_with(" \\")), "{text}");
        assert!(text.ends_with("'it'\\''s $HOME'\n"), "{text}");
    }
}
