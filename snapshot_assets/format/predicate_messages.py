"""Encodes and decodes the predicates of tombstones."""

from __future__ import annotations

from collections.abc import Iterable

from snapshot_assets.errors import UnsupportedVersionError
from snapshot_assets.format import log_pb2 as pb
from snapshot_assets.format import predicates as pred
from snapshot_assets.format.literals import Literal

_OPERATORS = {
    pred.Operator.EQUAL: pb.Comparison.EQUAL,
    pred.Operator.NOT_EQUAL: pb.Comparison.NOT_EQUAL,
    pred.Operator.LESS: pb.Comparison.LESS,
    pred.Operator.LESS_EQUAL: pb.Comparison.LESS_EQUAL,
    pred.Operator.GREATER: pb.Comparison.GREATER,
    pred.Operator.GREATER_EQUAL: pb.Comparison.GREATER_EQUAL,
}
_SIGN = 1 << 63


def encode_predicate(predicate: pred.Predicate) -> pb.Predicate:
    """Return a predicate's message."""
    match predicate:
        case pred.Comparison():
            value = _encode_literal(predicate.value)
            operator = _OPERATORS[predicate.operator]
            return pb.Predicate(comparison=pb.Comparison(column=predicate.column, operator=operator, value=value))
        case pred.IsIn():
            values = [_encode_literal(literal) for literal in predicate.values]
            return pb.Predicate(is_in=pb.IsIn(column=predicate.column, values=values))
        case pred.IsNull():
            return pb.Predicate(is_null=predicate.column)
        case pred.Not():
            return pb.Predicate(negated=encode_predicate(predicate.predicate))
        case pred.And():
            return pb.Predicate(all=_encode_all(predicate.predicates))
        case pred.Or():
            return pb.Predicate(any=_encode_all(predicate.predicates))


def decode_predicate(message: pb.Predicate) -> pred.Predicate:
    """Return the predicate in a message; Protobuf has already limited its depth.

    Raises:
        DocumentError: The predicate is invalid; see `predicates.check_predicate`.
        UnsupportedVersionError: This code does not know the kind of a part.
    """
    return pred.check_predicate(_decode(message))


def _encode_all(predicates: Iterable[pred.Predicate]) -> pb.Predicates:
    return pb.Predicates(predicates=[encode_predicate(part) for part in predicates])


def _decode(message: pb.Predicate) -> pred.Predicate:
    match message.WhichOneof("kind"):
        case "comparison":
            comparison = message.comparison
            operators = {number: operator for operator, number in _OPERATORS.items()}
            if comparison.operator in operators:
                value = _decode_literal(comparison.value)
                return pred.Comparison(comparison.column, operators[comparison.operator], value)
        case "is_in":
            values = tuple(_decode_literal(value) for value in message.is_in.values)
            return pred.IsIn(message.is_in.column, values)
        case "is_null":
            return pred.IsNull(message.is_null)
        case "negated":
            return pred.Not(_decode(message.negated))
        case "all":
            return pred.And(tuple(_decode(part) for part in message.all.predicates))
        case "any":
            return pred.Or(tuple(_decode(part) for part in message.any.predicates))
    raise UnsupportedVersionError("A predicate has a part that this code does not know. Use a newer snapshot_assets.")


def _encode_literal(literal: Literal) -> pb.Literal:
    match literal.value:
        case bool():
            return pb.Literal(type=literal.type, boolean=literal.value)
        case int():
            return pb.Literal(type=literal.type, integer=(literal.value + _SIGN) % (2 * _SIGN) - _SIGN)
        case float():
            return pb.Literal(type=literal.type, floating=literal.value)
        case str():
            return pb.Literal(type=literal.type, text=literal.value)
        case bytes():
            return pb.Literal(type=literal.type, binary=literal.value)


def _decode_literal(message: pb.Literal) -> Literal:
    kind = message.WhichOneof("value")
    if kind is None:
        raise UnsupportedVersionError("A literal has no value that this code knows. Use a newer snapshot_assets.")
    value = getattr(message, kind)
    if message.type == "uint64" and kind == "integer":
        value %= 2 * _SIGN
    return Literal(message.type, value)
