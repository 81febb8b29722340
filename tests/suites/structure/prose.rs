//! Checks how docs, messages and comments read.

use crate::source::{is_generated, strip};
use crate::{Found, docs, files, read};

/// The longest sentence, and the mean of a page, in words.
const LONGEST: usize = 35;
const MEAN: f64 = 20.0;

/// Words and phrases that the rules of style ban.
const BANNED: [&str; 9] = [
    "told",
    "tell of",
    "tells of",
    "whoever",
    "is none",
    "has of",
    "what becomes of",
    "what became of",
    "becomes of it",
];

/// The ends of the names of files that are text as a whole. The first three have comments behind `#`.
const TEXT: [&str; 4] = [".txt", ".chart", ".sh", ".json"];

/// The ends of the names of files with comments of C.
const CODE: &[&str] = &[".rs", ".c", ".h"];

/// Pages whose mean sentence is too long, or that have single sentences over the limit.
pub fn long() -> Found {
    let mut found = Found::new();
    let (mut words, mut count) = (0, 0);
    for page in docs::pages() {
        let sentences = sentences(&read(&page));
        let prose = sentences.iter().filter(|(cell, _)| !cell);
        let lengths: Vec<usize> = prose.map(|(_, sentence)| length(sentence)).collect();
        words += lengths.iter().sum::<usize>();
        count += lengths.len();
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64;
        if mean > MEAN {
            found.insert(format!("{page} mean"), format!("{mean:.1} words; at most {MEAN}"));
        }
        let long: Vec<String> = sentences
            .iter()
            .filter(|(_, sentence)| length(sentence) > LONGEST)
            .map(|(_, sentence)| format!("{} words: {sentence}", length(sentence)))
            .collect();
        if !long.is_empty() {
            found.insert(format!("{page} long"), long.join("\n"));
        }
    }
    println!("{count} sentences in docs, mean {:.1} words", words as f64 / f64::from(count.max(1) as u32));
    found
}

/// Files with comments that have sentences over the limit.
pub fn long_comments() -> Found {
    let mut found = Found::new();
    let folders = docs::FOLDERS.iter().flat_map(|folder| files(folder, &[CODE, &TEXT[..3]].concat()));
    for path in folders {
        let text = read(&path);
        let code = CODE.iter().any(|end| path.ends_with(end));
        let lines = text.lines().map(|line| if code { whole_comment(line) } else { remark(line) });
        let sentences = sentences(&lines.map(apart).collect::<String>());
        let long = sentences.iter().filter(|(_, sentence)| length(sentence) > LONGEST);
        let long: Vec<String> =
            long.map(|(_, sentence)| format!("{} words: {sentence}", length(sentence))).collect();
        if !long.is_empty() {
            found.insert(path, long.join("\n"));
        }
    }
    found
}

/// The text of a line of C or Rust that is a comment as a whole, otherwise nothing.
fn whole_comment(line: &str) -> &str {
    let line = line.trim().trim_end_matches("*/");
    let marks = ["///", "//!", "//", "/**", "/*", "*"];
    let text = marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or("");
    text.strip_prefix(' ').unwrap_or("")
}

/// The text of a comment in a script or a table, otherwise nothing.
fn remark(line: &str) -> &str {
    line.trim().strip_prefix('#').map_or("", |text| text.strip_prefix(' ').unwrap_or(text))
}

/// A line of a comment, apart from the line before where it begins a parameter, a label or an indented row.
fn apart(line: &str) -> String {
    let label = line.split_once(':').is_some_and(|(label, _)| !label.contains(' '));
    let begins = label || line.starts_with("  ") || line.starts_with('#');
    format!("{}{}\n", if begins { "\n" } else { "" }, line.trim_start_matches('#'))
}

fn length(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// The sentences of a page in Markdown, without headings and blocks of code. True marks sentences in cells of
/// tables. Code in backticks counts as one word.
fn sentences(text: &str) -> Vec<(bool, String)> {
    let mut blocks: Vec<(bool, String)> = vec![Default::default()];
    let mut fenced = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
            blocks.push(Default::default());
            continue;
        }
        if fenced || line.starts_with('#') || line.is_empty() || line.starts_with("<!--") {
            blocks.push(Default::default());
            continue;
        }
        let line = plain(line);
        if line.starts_with('|') {
            blocks.extend(line.split('|').map(|cell| (true, cell.to_owned())));
            blocks.push(Default::default());
            continue;
        }
        let number =
            line.split_once(". ").is_some_and(|(number, _)| number.chars().all(|c| c.is_ascii_digit()));
        if number || line.starts_with("- ") || line.starts_with("* ") {
            blocks.push(Default::default());
        }
        let line = if number { line.split_once(". ").map_or("", |(_, rest)| rest) } else { &line };
        let (_, block) = blocks.last_mut().expect("there is always one");
        block.push_str(line);
        block.push(' ');
    }
    let sentences =
        |(cell, block): &(bool, String)| split(block).into_iter().map(|one| (*cell, one)).collect::<Vec<_>>();
    blocks.iter().flat_map(sentences).collect()
}

/// A line without code and without targets of links.
fn plain(line: &str) -> String {
    let mut text = String::new();
    for (number, part) in line.split('`').enumerate() {
        text.push_str(if number % 2 == 0 { part } else { "Code" });
    }
    while let Some(at) = text.find("](") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "]");
    }
    text
}

/// The sentences of a block. One ends at a full stop, a question mark or an exclamation mark before a word
/// that does not begin in lower case.
fn split(block: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut sentence = String::new();
    let mut words = block.split_whitespace().peekable();
    while let Some(word) = words.next() {
        sentence.push_str(word);
        sentence.push(' ');
        let ends = word.trim_end_matches(['"', ')', '*', '_', ']']).ends_with(['.', '!', '?']);
        let next = words.peek().and_then(|word| word.chars().find(|c| c.is_alphanumeric()));
        if next.is_none_or(|c| ends && !c.is_lowercase()) {
            sentences.push(std::mem::take(&mut sentence).trim_end().to_owned());
        }
    }
    sentences.extend((!sentence.is_empty()).then_some(sentence));
    sentences.retain(|sentence| length(sentence) > 0);
    sentences
}

/// Banned words in docs, in comments, in messages of programs and of the runtime, and in all other text.
pub fn banned() -> Found {
    let mut found = Found::new();
    let mut note = |path: &str, line: usize, text: &str| {
        for phrase in BANNED.iter().filter(|phrase| has(text, phrase)) {
            let detail = found.entry(format!("{path} '{phrase}'")).or_default();
            detail.push_str(&format!("{path}:{line}: {}\n", text.trim()));
        }
    };
    // The glossary lists the words that are not used.
    let pages = docs::pages().into_iter().filter(|page| page != "docs/glossary.md");
    for page in pages.chain(docs::FOLDERS.iter().flat_map(|folder| files(folder, &TEXT))) {
        read(&page).lines().enumerate().for_each(|(at, line)| note(&page, at + 1, line));
    }
    for path in docs::FOLDERS.iter().flat_map(|folder| files(folder, CODE)) {
        let text = read(&path);
        // The literals of this file are the words themselves, and names in JSON stay.
        let stable =
            |line: usize| text.lines().nth(line - 1).is_some_and(|line| line.contains("serde(rename"));
        let literals = if path.ends_with("structure/prose.rs") { Vec::new() } else { strip(&text).literals };
        let literals = literals.iter().filter(|literal| !stable(literal.line));
        literals.for_each(|literal| note(&path, literal.line, &literal.text));
        let comments = text.lines().enumerate().filter_map(|(at, line)| Some((at, comment(line)?)));
        comments.for_each(|(at, comment)| note(&path, at + 1, comment));
    }
    found
}

/// The comment that a line of code has, or is a part of.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let within = line.starts_with("* ").then_some(line);
    within.or_else(|| ["// ", "/// ", "//! ", "/* "].iter().find_map(|mark| Some(&line[line.find(mark)?..])))
}

/// True where the phrase occurs as separate words.
fn has(text: &str, phrase: &str) -> bool {
    let text = text.to_lowercase();
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
    text.match_indices(phrase).any(|(at, _)| {
        !word(text[..at].chars().next_back()) && !word(text[at + phrase.len()..].chars().next())
    })
}

/// The number of doc comments of one word, by crate.
pub fn one_word() -> Found {
    let mut crates: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for path in files("crates", &[".rs"]).into_iter().filter(|path| path.contains("/src/")) {
        let text = read(&path);
        if is_generated(&text) {
            continue;
        }
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let doc = |at: Option<usize>| {
                at.and_then(|at| lines.get(at)).is_some_and(|line| line.starts_with("///"))
            };
            let Some(comment) = line.strip_prefix("///") else { continue };
            if comment.split_whitespace().count() == 1 && !doc(at.checked_sub(1)) && !doc(Some(at + 1)) {
                let name = path.split('/').nth(1).unwrap_or_default().to_owned();
                crates.entry(name).or_default().push(format!("{path}:{}: {line}", at + 1));
            }
        }
    }
    crates.into_iter().map(|(name, all)| (format!("{name} {}", all.len()), all.join("\n"))).collect()
}

#[test]
fn sentences_are_split() {
    let text = "# Head\nOne `a b c` two. Three e.g. four\nfive [x](y z).\n\n- Item one.\n- Item two\n\n```\ncode.\n```\n| a b | c |\n|---|---|\n";
    let lengths: Vec<usize> = sentences(text).iter().map(|(_, sentence)| length(sentence)).collect();
    assert_eq!(lengths, [3, 5, 2, 2, 2, 1]);
}

#[test]
fn phrases_are_words() {
    assert!(has("It is Told.", "told") && has("what it has of x", "has of"));
    assert!(!has("untold", "told") && !has("has often", "has of"));
}
