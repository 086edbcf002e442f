"""The demo's prompts about code: small edits of small functions, as an assistant gets them."""

from __future__ import annotations

_EDITS = (
    (
        "Add a docstring",
        (
            "def area(width, height):\n    if width < 0 or height < 0:\n"
            "        raise ValueError('negative')\n    return width * height"
        ),
    ),
    (
        "Rename the variable t to total",
        (
            "def mean(values):\n    t = 0\n    for v in values:\n        t = t + v\n"
            "    return t / len(values)"
        ),
    ),
    (
        "Add type hints",
        (
            "def repeat(word, times):\n    result = []\n    for i in range(times):\n"
            "        result.append(word)\n    return ' '.join(result)"
        ),
    ),
    (
        "Make the function also accept an empty list",
        (
            "def largest(numbers):\n    best = numbers[0]\n    for number in numbers:\n"
            "        if number > best:\n            best = number\n    return best"
        ),
    ),
    (
        "Print every step",
        "def countdown(start):\n    while start > 0:\n        start = start - 1\n    return start",
    ),
    (
        "Write a second method named remove",
        (
            "class Basket:\n    def __init__(self):\n        self.items = []\n"
            "    def add(self, item):\n        self.items.append(item)"
        ),
    ),
    (
        "Use a list comprehension",
        (
            "def evens(numbers):\n    result = []\n    for number in numbers:\n"
            "        if number % 2 == 0:\n            result.append(number)\n    return result"
        ),
    ),
    (
        "Add a default value of 10 for limit",
        (
            "def first_words(text, limit):\n    words = text.split()\n    short = words[:limit]\n"
            "    return ' '.join(short)"
        ),
    ),
    (
        "Write three tests",
        (
            "def is_leap(year):\n    if year % 400 == 0:\n        return True\n"
            "    if year % 100 == 0:\n        return False\n    return year % 4 == 0"
        ),
    ),
    (
        "Handle a missing file",
        (
            "def read_lines(path):\n    with open(path) as file:\n        lines = file.readlines()\n"
            "    return [line.strip() for line in lines]"
        ),
    ),
    (
        "Count words instead of letters",
        (
            "def count_letters(text):\n    counts = {}\n    for letter in text:\n"
            "        counts[letter] = counts.get(letter, 0) + 1\n    return counts"
        ),
    ),
    (
        "Add a comment above every line",
        "def swap(pair):\n    first = pair[0]\n    second = pair[1]\n    return (second, first)",
    ),
    (
        "Add a method that returns the balance",
        (
            "class Account:\n    def __init__(self, balance):\n        self.balance = balance\n"
            "    def deposit(self, amount):\n        self.balance = self.balance + amount"
        ),
    ),
    (
        "Turn the loop into a while loop",
        (
            "def factorial(n):\n    result = 1\n    for i in range(1, n + 1):\n"
            "        result = result * i\n    return result"
        ),
    ),
    (
        "Return a dictionary instead of a tuple",
        (
            "def parse(line):\n    name, age, city = line.split(',')\n"
            "    return (name.strip(), int(age), city.strip())"
        ),
    ),
    (
        "Write the same function for minutes",
        (
            "def seconds_to_text(seconds):\n    minutes = seconds // 60\n    rest = seconds % 60\n"
            "    return f'{minutes} min {rest} s'"
        ),
    ),
)

CODE: tuple[str, ...] = tuple(
    f"{task}. Write the whole code again.\n\n```python\n{code}\n```" for task, code in _EDITS
)
"""Sixteen prompts, each with the code to be changed.

>>> CODE[0].splitlines()[0]
'Add a docstring. Write the whole code again.'
"""
