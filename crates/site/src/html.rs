//! Builds pages. Markup is part of the program, and everything else is text that is escaped.

use guardrail_report::html::escaped;
use std::fmt::Display;

/// What all pages look like. Nothing else is loaded.
pub(crate) const STYLE: &str = include_str!("style.css");

/// What a page may do: nothing but be styled by itself.
pub(crate) const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A page, or a part of one, that grows.
#[derive(Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    /// Adds markup, which is written in the program.
    pub(crate) fn raw(&mut self, markup: &'static str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Adds text from anywhere, for the content of an element or between the quotes of an attribute.
    pub(crate) fn text(&mut self, text: impl Display) -> &mut Html {
        self.0.push_str(&escaped(&text.to_string()));
        self
    }

    /// Adds a link.
    pub(crate) fn link(&mut self, address: &str, text: impl Display) -> &mut Html {
        self.raw("<a href=\"").text(address).raw("\">").text(text).raw("</a>")
    }

    /// Adds an element that holds text, such as `("<td>", text, "</td>")`.
    pub(crate) fn element(
        &mut self,
        begin: &'static str,
        text: impl Display,
        end: &'static str,
    ) -> &mut Html {
        self.raw(begin).text(text).raw(end)
    }

    /// Adds a row of a list of facts, unless the value is empty.
    pub(crate) fn fact(&mut self, name: &'static str, value: impl Display) -> &mut Html {
        let value = value.to_string();
        if value.is_empty() {
            return self;
        }
        self.element("<dt>", name, "</dt>").element("<dd>", value, "</dd>\n")
    }

    /// Adds a cell. In a narrow window rows are cards, which show the name of the column before each value.
    pub(crate) fn cell(&mut self, column: &'static str, value: impl Display) -> &mut Html {
        self.begin_cell(column).text(value).raw("</td>")
    }

    /// Begins a cell whose end is `</td>`.
    pub(crate) fn begin_cell(&mut self, column: &'static str) -> &mut Html {
        self.raw("<td data-label=\"").text(column).raw("\">")
    }

    /// A whole page. `path` has the pages above it: their addresses and names.
    pub(crate) fn page(title: &str, path: &[(String, String)], fill: impl FnOnce(&mut Html)) -> String {
        let mut page = Html::default();
        page.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"").text(POLICY).raw("\">\n");
        page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        page.raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
        page.raw("<meta name=\"referrer\" content=\"no-referrer\">\n");
        page.element("<title>", format!("{title} – guardrail"), "</title>\n");
        page.raw("<style>\n").raw(STYLE).raw("</style>\n</head>\n<body>\n");
        page.raw("<a class=\"skip\" href=\"#content\">Skip to the content</a>\n");
        if !path.is_empty() {
            page.raw("<nav aria-label=\"Pages above\"><ol>");
            for (address, name) in path {
                page.raw("<li>").link(address, name).raw("</li>");
            }
            page.raw("</ol></nav>\n");
        }
        page.raw("<main id=\"content\">\n").element("<h1>", title, "</h1>\n");
        fill(&mut page);
        page.raw("</main>\n<footer><p>Made by guardrail from the reports in this folder.</p></footer>\n</body>\n</html>\n");
        page.0
    }
}

/// A number with the word for what it counts.
pub(crate) fn counted(number: usize, one: &str, many: &str) -> String {
    match number {
        0 => format!("no {many}"),
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    }
}
