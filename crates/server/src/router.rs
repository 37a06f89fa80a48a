//! Finds the row of the route table that a request belongs to: by its path, then by its method.

use std::sync::Arc;

use axum::http::{HeaderValue, Method};
use percent_encoding::percent_decode_str;

use crate::metrics::Tally;
use crate::route::Route;

/// All routes, found by their paths.
pub(crate) struct Router {
    paths: matchit::Router<Place>,
}

/// A row of the table, with what a server keeps for it.
pub(crate) struct Row {
    pub(crate) route: &'static Route,
    /// The names in braces, in order.
    pub(crate) names: Vec<&'static str>,
    pub(crate) tally: Tally,
}

/// What there is at a path.
struct Place {
    rows: Vec<Arc<Row>>,
    /// The methods that can be used.
    allow: HeaderValue,
}

/// The parts of a path that have names, decoded once.
pub(crate) type Params = Vec<(&'static str, String)>;

/// What is found for a request.
pub(crate) enum Found<'a> {
    /// Its row.
    Row(&'a Arc<Row>, Params),
    /// The path is there, but not for this method; these can be used.
    OtherMethods(&'a HeaderValue),
    /// A part of the path is not text in UTF-8.
    Garbled,
    /// There is no such path.
    Nothing,
}

impl Router {
    pub(crate) fn new(table: &'static [Route]) -> Self {
        let mut paths = matchit::Router::new();
        for (at, first) in table.iter().enumerate() {
            let is_same = |other: &&Route| other.path == first.path;
            if table.iter().take(at).any(|earlier| is_same(&earlier)) {
                continue;
            }
            let routes = table.iter().filter(is_same).collect();
            paths.insert(first.path, Place::new(routes, first.path)).expect("no two paths of the table are alike");
        }
        Self { paths }
    }

    /// Looks a request up. Who asks only for the head of an answer is answered as who asks for all of it.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Found<'_> {
        let Ok(matched) = self.paths.at(path) else { return Found::Nothing };
        let wanted = if *method == Method::HEAD { &Method::GET } else { method };
        let Some(row) = matched.value.rows.iter().find(|row| row.route.method == *wanted) else {
            return Found::OtherMethods(&matched.value.allow);
        };
        let mut params = Vec::with_capacity(row.names.len());
        for (name, (_, raw)) in row.names.iter().zip(matched.params.iter()) {
            let Ok(value) = percent_decode_str(raw).decode_utf8() else { return Found::Garbled };
            params.push((*name, value.into_owned()));
        }
        Found::Row(row, params)
    }
}

impl Place {
    fn new(routes: Vec<&'static Route>, path: &'static str) -> Self {
        let parts = path.split('/');
        let names: Vec<&str> = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let mut methods: Vec<&str> = routes.iter().map(|route| route.method.as_str()).collect();
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        let allow = HeaderValue::from_str(&methods.join(",")).expect("methods are words");
        let row = |route: &'static Route| Row { route, names: names.clone(), tally: Tally::of(route.operation) };
        Self { rows: routes.into_iter().map(row).map(Arc::new).collect(), allow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes;

    fn found(method: Method, path: &str) -> String {
        match Router::new(routes::all()).find(&method, path) {
            Found::Row(row, params) => format!("{} {params:?}", row.route.operation),
            Found::OtherMethods(allow) => format!("use {}", allow.to_str().unwrap()),
            Found::Garbled => "garbled".to_owned(),
            Found::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn every_row_of_the_table_is_found_by_its_own_path() {
        let router = Router::new(routes::all());
        for route in routes::all() {
            let Found::Row(found, params) = router.find(&route.method, route.path) else {
                panic!("{} {} is not found", route.method, route.path)
            };
            assert_eq!(found.route.operation, route.operation);
            for (name, value) in params {
                assert_eq!(value, format!("{{{name}}}"));
            }
        }
    }

    #[test]
    fn names_are_decoded_once_and_only_whole_parts() {
        let get = |name: &str| found(Method::GET, &format!("/api/v1/namespaces/n/tasks/{name}"));
        assert_eq!(get("a%20b"), r#"getTask [("ns", "n"), ("id", "a b")]"#);
        assert_eq!(get("a%2520b"), r#"getTask [("ns", "n"), ("id", "a%20b")]"#);
        assert_eq!(get("..%2fb"), r#"getTask [("ns", "n"), ("id", "../b")]"#);
        assert_eq!(get("%ff"), "garbled");
        for nowhere in ["", "a/", "a/b", "a//"] {
            assert_eq!(get(nowhere), "nothing", "{nowhere:?}");
        }
    }

    #[test]
    fn who_uses_another_method_hears_which_there_are() {
        assert_eq!(found(Method::HEAD, "/health"), "health []");
        assert_eq!(found(Method::POST, "/health"), "use GET,HEAD");
        assert_eq!(found(Method::GET, "/api/v1/namespaces/n/settlements"), "use POST");
        for nowhere in ["", "*", "/no/such/path", "//health", "/health/"] {
            assert_eq!(found(Method::GET, nowhere), "nothing", "{nowhere:?}");
        }
    }
}
