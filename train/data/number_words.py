"""Numbers in digits and in English words: a sequence-to-sequence task made by code, with nothing to download."""

import torch

from train.data.order import generator

# fmt: off
UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# fmt: on
PADDING, END = 0, 1
TOKENS = ["<pad>", "</s>", *"0123456789", *UNITS, *TENS, "hundred", "thousand"]
NUMBERS = 10_000
EVALUATION = 1_000

_INDEX = {token: number for number, token in enumerate(TOKENS)}


def words(number: int) -> list[str]:
    """The English words of a number from 0 to 999,999: 4281 is four thousand two hundred eighty one."""
    if number >= 1000:
        rest = words(number % 1000) if number % 1000 else []
        return [*words(number // 1000), "thousand", *rest]
    if number >= 100:
        rest = words(number % 100) if number % 100 else []
        return [UNITS[number // 100], "hundred", *rest]
    if number >= 20:
        return [TENS[number // 10 - 2], *([UNITS[number % 10]] if number % 10 else [])]
    return [UNITS[number]]


def pairs() -> tuple[list[tuple[list[int], list[int]]], list[tuple[list[int], list[int]]]]:
    """Training and evaluation pairs (tokens of the digits, tokens of the words), each ended by `END`.

    All numbers below `NUMBERS`, of which `EVALUATION` drawn ones evaluate, the same for every seed.
    """
    order = torch.randperm(NUMBERS, generator=generator(0, "number_words")).tolist()
    numbers = [(_tokens(list(str(number))), _tokens(words(number))) for number in order]
    return numbers[EVALUATION:], numbers[:EVALUATION]


def _tokens(text: list[str]) -> list[int]:
    return [*(_INDEX[token] for token in text), END]
