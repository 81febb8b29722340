//! Words of LLVM IR.

/// One word.
#[derive(Clone, Debug, PartialEq)]
pub enum Token<'a> {
    /// A keyword, a number, a label.
    Word(&'a str),
    /// A local name, `%name`.
    Local(&'a str),
    /// A global name, `@name`.
    Global(&'a str),
    /// `!name`, without the sign.
    Meta(&'a str),
    /// The text between quotes, escapes as they stand.
    Text(&'a str),
    /// Any other character.
    Sign(char),
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'$')
}

/// The words of a line. A comment ends it.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    let quoted =
        |from: usize| bytes[from..].iter().position(|&byte| byte == b'"').map_or(bytes.len(), |n| from + n);
    let word =
        |from: usize| bytes[from..].iter().position(|&byte| !is_word(byte)).map_or(bytes.len(), |n| from + n);
    while at < bytes.len() {
        match bytes[at] {
            b';' => break,
            b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            b'"' => {
                let end = quoted(at + 1);
                found.push(Token::Text(&text[at + 1..end]));
                at = end + 1;
            }
            sign @ (b'%' | b'@' | b'!') => {
                let make = |name| match sign {
                    b'%' => Token::Local(name),
                    b'@' => Token::Global(name),
                    _ => Token::Meta(name),
                };
                if sign != b'!' && bytes.get(at + 1) == Some(&b'"') {
                    let end = quoted(at + 2);
                    found.push(make(&text[at + 2..end]));
                    at = end + 1;
                } else {
                    let end = word(at + 1);
                    found.push(make(&text[at + 1..end]));
                    at = end;
                }
            }
            byte if is_word(byte) => {
                let end = word(at);
                found.push(Token::Word(&text[at..end]));
                at = end;
            }
            byte if byte.is_ascii() => {
                found.push(Token::Sign(byte as char));
                at += 1;
            }
            _ => {
                // No character outside ASCII stands outside quotes.
                let length = text[at..].chars().next().map_or(1, char::len_utf8);
                found.push(Token::Sign('?'));
                at += length;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_names() {
        let found = tokens("%1 = load i32, @\"a b\", align 4, !dbg !7 ; note");
        assert_eq!(found[0], Token::Local("1"));
        assert_eq!(found[5], Token::Global("a b"));
        assert_eq!(found.last(), Some(&Token::Meta("7")));
        assert_eq!(tokens("c\"a;b\" ü"), [Token::Word("c"), Token::Text("a;b"), Token::Sign('?')]);
    }
}
