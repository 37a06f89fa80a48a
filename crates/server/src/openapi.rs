//! The API's description, made of the route table and of what the wire's types say of themselves.

use std::sync::LazyLock;

use axum::http::Method;
use ekiden_core::limits::ID_BYTES_MAX;
use ekiden_core::task::Phase;
use ekiden_wire::ErrorBody;
use utoipa::openapi::path::{HttpMethod, Operation, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, Components, ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Content, InfoBuilder, OpenApiBuilder, Paths, Ref, RefOr, Required, Response, ResponseBuilder, Schema,
};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::access::Scope;
use crate::route::{Gives, Parameter, Route, Shape, Takes, Values};
use crate::routes;

const TOKEN: &str = "token";

/// The OpenAPI document, as JSON.
pub fn document() -> &'static str {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
        let mut text = serde_json::to_string_pretty(&build()).expect("a description has only texts for keys");
        text.push('\n');
        text
    });
    &DOCUMENT
}

fn build() -> utoipa::openapi::OpenApi {
    let mut components = Components::new();
    let mut paths = Paths::new();
    let mut schemas = vec![(ErrorBody::name().into_owned(), ErrorBody::schema())];
    ErrorBody::schemas(&mut schemas);
    for route in routes::all() {
        for shape in shapes(route) {
            schemas.push(((shape.name)().into_owned(), (shape.schema)()));
            (shape.schemas)(&mut schemas);
        }
        paths.add_path_operation(route.path, vec![method(&route.method)], operation(route));
    }
    components.schemas.extend(schemas);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme(TOKEN, SecurityScheme::Http(bearer));
    let about = "Tasks that must not be lost, run twice or hang. Moments are text in UTC, durations are numbers whose \
                 names end in `_ms`. A field that may be `null` is left out by it; only in a `payload` and a `result`, which \
                 are any JSON, `null` is a value. Lengths of names and texts are given in characters and counted in bytes \
                 of UTF-8. Every refusal has the shape of ErrorBody; compare its `reason_code`. Tokens are \
                 needed only where the server has any.";
    let info = InfoBuilder::new().title("Ekiden").version(env!("CARGO_PKG_VERSION")).description(Some(about)).build();
    OpenApiBuilder::new().info(info).paths(paths).components(Some(components)).build()
}

fn shapes(route: &Route) -> impl Iterator<Item = Shape> {
    let takes = match route.takes {
        Takes::Json { shape, .. } | Takes::JsonOrNothing { shape, .. } => Some(shape),
        Takes::Nothing | Takes::Octets { .. } => None,
    };
    let gives = match route.gives {
        Gives::Json { shape, .. } => Some(shape),
        Gives::Nothing | Gives::Other { .. } => None,
    };
    takes.into_iter().chain(gives)
}

fn method(method: &Method) -> HttpMethod {
    match *method {
        Method::POST => HttpMethod::Post,
        Method::PUT => HttpMethod::Put,
        Method::DELETE => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}

fn operation(route: &Route) -> Operation {
    let mut operation = OperationBuilder::new().operation_id(Some(route.operation)).summary(Some(route.summary));
    if route.scope != Scope::Open {
        let scope = format!("Needs the scope `{}` where tokens are on.", route.scope.as_str());
        operation = operation.description(Some(scope));
        operation = operation.security(SecurityRequirement::new(TOKEN, Vec::<String>::new()));
        operation = operation.security(SecurityRequirement::default());
    }
    for name in path_names(route.path) {
        operation = operation.parameter(
            ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .schema(Some(path_schema(name)))
                .build(),
        );
    }
    for parameter in route.query {
        operation = operation.parameter(query_parameter(parameter));
    }
    operation = match route.takes {
        Takes::Nothing => operation,
        Takes::Json { shape, .. } => operation.request_body(Some(body("application/json", reference(shape), true))),
        Takes::JsonOrNothing { shape, .. } => {
            operation.request_body(Some(body("application/json", reference(shape), false)))
        }
        Takes::Octets { .. } => operation.request_body(Some(body("application/octet-stream", octets(), true))),
    };
    for (status, response) in responses(route) {
        operation = operation.response(status, response);
    }
    operation.build()
}

fn body(media_type: &str, schema: RefOr<Schema>, required: bool) -> utoipa::openapi::request_body::RequestBody {
    let required = if required { Required::True } else { Required::False };
    RequestBodyBuilder::new().content(media_type, Content::new(Some(schema))).required(Some(required)).build()
}

fn responses(route: &Route) -> Vec<(String, Response)> {
    let with = |description: &str, media_type: &str, schema: Option<RefOr<Schema>>| {
        ResponseBuilder::new().description(description).content(media_type, Content::new(schema)).build()
    };
    let mut responses = match route.gives {
        Gives::Nothing => vec![("204".to_owned(), Response::new("Done"))],
        Gives::Json { shape, statuses } => {
            let answer = |status: &u16| (status.to_string(), with("Done", "application/json", Some(reference(shape))));
            statuses.iter().map(answer).collect()
        }
        Gives::Other { media_type } => vec![("200".to_owned(), with("Done", media_type, None))],
    };
    let error = RefOr::Ref(Ref::from_schema_name(ErrorBody::name()));
    responses.push(("default".to_owned(), with("Refused, or failed", "application/json", Some(error))));
    responses
}

fn reference(shape: Shape) -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name((shape.name)()))
}

fn octets() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).into()
}

fn query_parameter(parameter: &Parameter) -> utoipa::openapi::path::Parameter {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let schema = match parameter.values {
        Values::Text { chars_max } => text().max_length(Some(chars_max)),
        // An empty one is as if it were left out.
        Values::Id => text().max_length(Some(ID_BYTES_MAX)),
        Values::Words(words) => text().enum_values(Some(words.iter().copied())),
        Values::States => text().enum_values(Some(Phase::ALL.iter().map(|phase| phase.as_str()))),
        Values::Flag => ObjectBuilder::new().schema_type(Type::Boolean),
        Values::Number { min, max } => {
            let number =
                ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(utoipa::Number::UInt(min as usize)));
            number.maximum((max < u64::MAX).then_some(utoipa::Number::UInt(max as usize)))
        }
    };
    let schema: RefOr<Schema> = schema.into();
    let schema = if parameter.repeats { ArrayBuilder::new().items(schema).into() } else { schema };
    ParameterBuilder::new()
        .name(parameter.name)
        .parameter_in(ParameterIn::Query)
        .description(Some(parameter.what))
        .required(if parameter.needed { Required::True } else { Required::False })
        .schema(Some(schema))
        .build()
}

/// The names that stand in braces.
pub(crate) fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn path_schema(name: &str) -> RefOr<Schema> {
    if name == "execution_no" {
        return ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).into();
    }
    ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(128)).into()
}
