//! The API as a page: plain, made of the route table, without anything from outside and without a script.

use std::fmt::Write as _;
use std::sync::LazyLock;

use ekiden_core::reason::Language;

use crate::access::Scope;
use crate::route::{Gives, Route, Takes};
use crate::routes;

/// What the page may load: its own style, nothing else.
pub(crate) const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// How the page looks.
pub(crate) const STYLE: &str = include_str!("docs.css");

/// The page, which is the same for all who read it.
pub(crate) fn page(language: Language) -> &'static str {
    static EN: LazyLock<String> = LazyLock::new(|| made(Language::En));
    static JA: LazyLock<String> = LazyLock::new(|| made(Language::Ja));
    match language {
        Language::En => &EN,
        Language::Ja => &JA,
    }
}

fn made(language: Language) -> String {
    let (lang, lead, headings) = match language {
        Language::En => {
            ("en", "Everything that this server answers. The same for programs: ", ["Route", "Scope", "Takes", "Gives"])
        }
        Language::Ja => (
            "ja",
            "このサーバーが応答するすべてのルートです。プログラム用の記述: ",
            ["ルート", "スコープ", "入力", "出力"],
        ),
    };
    let mut html = String::with_capacity(16 * 1024);
    let [route, scope, takes, gives] = headings;
    // Writing to text cannot fail.
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"{lang}\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Ekiden API</title>\n<link rel=\"stylesheet\" href=\"/docs/style.css\">\n<h1>Ekiden API {}</h1>\n\
         <p>{lead}<a href=\"/openapi.json\">/openapi.json</a></p>\n<table>\n\
         <thead><tr><th>{route}<th>{scope}<th>{takes}<th>{gives}</thead>\n",
        env!("CARGO_PKG_VERSION")
    );
    for route in routes::all() {
        row(&mut html, route);
    }
    html.push_str("</table>\n</html>\n");
    html
}

fn row(html: &mut String, route: &Route) {
    let scope = if route.scope == Scope::Open { "–" } else { route.scope.as_str() };
    let takes = match route.takes {
        Takes::Nothing => "–".to_owned(),
        Takes::Json { shape, .. } => (shape.name)().into_owned(),
        Takes::JsonOrNothing { shape, .. } => format!("{}?", (shape.name)()),
        Takes::Octets { .. } => "octets".to_owned(),
    };
    let gives = match route.gives {
        Gives::Nothing => "204".to_owned(),
        Gives::Json { shape, .. } => (shape.name)().into_owned(),
        Gives::Other { media_type } => media_type.to_owned(),
    };
    let _ = write!(html, "<tr><td><code>{} {}</code><p>{}", route.method, route.path, route.summary);
    for parameter in route.query {
        let _ = write!(html, "<br><code>?{}=</code> {}", parameter.name, parameter.what);
    }
    let _ = writeln!(html, "<td>{scope}<td>{takes}<td>{gives}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_route_and_nothing_from_outside() {
        for language in [Language::En, Language::Ja] {
            let page = page(language);
            for route in routes::all() {
                assert!(page.contains(&format!("{} {}</code>", route.method, route.path)));
            }
            for never in ["<script", "http://", "https://", " style=", "onclick", "@import", "url("] {
                assert!(!page.contains(never) && !STYLE.contains(never), "{never}");
            }
        }
    }
}
