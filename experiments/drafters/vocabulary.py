"""Words that training prompts are made of, by what they name."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    """Split at commas.

    >>> _words("a b, c")
    ('a b', 'c')
    """
    return tuple(word.strip() for word in text.split(",") if word.strip())


SUBJECTS = _words(
    "volcanoes, the water cycle, photosynthesis, black holes, electric cars, the printing press, "
    "the silk trade, bees, coral reefs, the immune system, vaccines, earthquakes, glaciers, "
    "the human heart, inflation, interest rates, democracy, the steam engine, the telephone, "
    "satellites, the moon, rainbows, tides, gravity, magnetism, lightning, atoms, enzymes, "
    "the roman empire, ancient egypt, the french revolution, the industrial revolution, "
    "renaissance painting, jazz, opera, the novel, film editing, photography, architecture, "
    "bridges, railways, ships, aeroplanes, bicycles, windmills, solar panels, batteries, "
    "nuclear power, recycling, plastic waste, deserts, rainforests, rivers, wetlands, soil, "
    "crop rotation, irrigation, coffee, tea, chocolate, bread, cheese, salt, sugar, olive oil, "
    "whales, wolves, elephants, bats, owls, penguins, spiders, ants, sharks, dinosaurs, "
    "sleep, memory, stress, exercise, vitamins, blood pressure, diabetes, allergies, "
    "machine learning, search engines, databases, encryption, computer networks, operating systems, "
    "social media, online shopping, video games, chess, football, tennis, swimming, the marathon, "
    "mountain climbing, public libraries, schools, universities, hospitals, city parks, "
    "public transport, tourism, insurance, taxes, pensions, trade unions, stock markets, "
    "supply and demand, philosophy, ethics, logic, probability, geometry, calculus, prime numbers, "
    "DNA, evolution, the brain, the eye, the ear, bones, muscles, proteins, carbon dioxide, "
    "climate change, the ozone layer, the solar system, comets, telescopes, microscopes, lasers"
)

ASPECTS = _words(
    "the history of {}, how {} changed everyday life, why {} matters today, the future of {}, "
    "common mistakes about {}, the economics of {}, what children should know about {}, "
    "the science behind {}, the benefits and the risks of {}, new research on {}, "
    "what surprised experts about {}, the main parts of {}"
)

PLACES = _words(
    "Iceland, Portugal, Kenya, Peru, Vietnam, Norway, Greece, Morocco, Japan, Canada, New Zealand, "
    "Scotland, Italy, Spain, India, Mexico, Egypt, Thailand, Turkey, Ireland, Chile, Brazil, "
    "South Africa, Sweden, Poland, Austria, Hawaii, Alaska, Texas, California, Florida, New York, "
    "London, Paris, Berlin, Rome, Tokyo, Sydney, Toronto, Chicago, Boston, Vienna, Prague, Lisbon"
)

PEOPLE = _words(
    "Anna, Ben, Clara, David, Emma, Frank, Grace, Henry, Iris, James, Karen, Leo, Maria, Noah, "
    "Olivia, Paul, Rachel, Sam, Tina, Victor, Wendy, Tom, Lucy, Jack, Sophie, Peter, Nina, Mark, "
    "Julia, Oscar, Helen, George, Laura, Max, Kate, Daniel, Alice, Robert, Jenny, Michael"
)

ITEMS = _words(
    "apples, books, pencils, marbles, tickets, cookies, stamps, flowers, eggs, oranges, shirts, "
    "cups, candles, chairs, toys, bottles, postcards, notebooks, bananas, cupcakes, balloons, "
    "stickers, coins, sandwiches, muffins, pumpkins, bracelets, puzzles, lemons, socks"
)

JOBS = _words(
    "doctor, teacher, baker, farmer, sailor, detective, pilot, gardener, chef, librarian, engineer, "
    "nurse, lawyer, journalist, carpenter, musician, painter, scientist, astronaut, shopkeeper, "
    "historian, coach, judge, mechanic, firefighter, tour guide, economist, programmer, poet, king"
)

THINGS = _words(
    "a small hotel, a coffee shop, a new phone, a language course, a garden centre, a fitness app, "
    "a children's museum, a bicycle shop, a cooking class, a travel agency, a bookshop, a bakery, "
    "a science fair, a charity run, a music festival, a farm, a repair shop, a dog shelter"
)

CODE_TASKS = _words(
    "reverses a string, checks whether a number is prime, sorts a list of numbers, "
    "computes the factorial of a number, finds the largest number in a list, counts the vowels of a "
    "word, removes duplicates from a list, merges two sorted lists, finds the n-th Fibonacci number, "
    "checks whether a word is a palindrome, reads a text file and counts its words, "
    "finds the most common word of a text, converts Celsius to Fahrenheit, "
    "computes the greatest common divisor of two numbers, searches a sorted list by bisection, "
    "counts how often each letter occurs, transposes a matrix, multiplies two matrices, "
    "finds all pairs that add up to a target, computes the average of a list, "
    "flattens a nested list, validates an email address, parses a date, writes a list to a csv file, "
    "implements a stack, implements a queue, implements a linked list, walks a binary tree, "
    "finds the shortest path in a grid, computes the edit distance of two words, "
    "generates random passwords, lists all files of a folder, computes compound interest, "
    "checks whether two words are anagrams, rotates an array, finds the missing number of a list, "
    "capitalises every word, computes the area of a circle, groups words by their first letter, "
    "finds the longest common prefix, rolls two dice, plays rock paper scissors, guesses a number, "
    "keeps a shopping cart, models a bank account, simulates a traffic light, draws a triangle of "
    "stars, converts a number to binary, sums the digits of a number, finds the second largest number"
)

LANGUAGES = ("Python", "Python", "Python", "JavaScript", "Java", "C++")

FACTS = _words(
    "the capital of {place}, the official language of {place}, the population of {place}, "
    "the currency of {place}, the largest river of {place}, the highest mountain of {place}, "
    "the most famous dish of {place}, the climate of {place}, the main religion of {place}"
)

WORKS = _words(
    "the first world cup, the first modern olympic games, the first man on the moon, the telephone, "
    "the light bulb, penicillin, the theory of relativity, the world wide web, the first airplane, "
    "Romeo and Juliet, the Mona Lisa, the ninth symphony, the periodic table, dynamite, the radio, "
    "the first computer, the great wall, the Eiffel tower, the statue of liberty, the declaration of "
    "independence, the last emperor, the suez canal, the panama canal, Frankenstein, Moby Dick, "
    "the first novel, the star wars films, the lord of the rings, the first television, "
    "the jungle book, the nobel prize, the red cross, the united nations, the euro, the magna carta"
)

GERMAN_WHO = (
    "Die Regierung",
    "Der Bürgermeister",
    "Eine Gruppe von Forschern",
    "Der Verein",
    "Die Polizei",
    "Ein junger Mann aus Hamburg",
    "Die Firma",
    "Unsere Nachbarin",
    "Der Trainer",
    "Die Schule",
    "Das Gericht",
    "Eine Frau aus Wien",
    "Der Präsident",
    "Die Universität",
    "Der Minister",
    "Die Feuerwehr",
    "Der Arzt",
    "Die Stadt",
    "Ein Sprecher der Bahn",
    "Das Museum",
)
GERMAN_DID = (
    "hat gestern angekündigt",
    "will im nächsten Jahr zeigen",
    "hat am Montag erklärt",
    "hofft seit langem",
    "hat in einem Bericht geschrieben",
    "bestätigte am Abend",
    "sagte in einem Interview",
    "hat lange nicht geglaubt",
    "glaubt inzwischen",
)
GERMAN_THAT = (
    "dass die Preise für Brot und Milch weiter steigen",
    "dass das neue Krankenhaus zu klein ist",
    "dass viele Menschen lieber mit dem Zug fahren",
    "dass der Fluss wieder sauber werden kann",
    "dass die Brücke im Winter geschlossen bleibt",
    "dass Kinder mehr Zeit im Wald brauchen",
    "dass die Arbeit in der Fabrik gefährlich war",
    "dass das Spiel am Samstag ausfallen muss",
    "dass die Zahl der Touristen stark gestiegen ist",
    "dass niemand bei dem Unfall verletzt wurde",
    "dass die Bauern wegen der Trockenheit Hilfe brauchen",
    "dass ein altes Schiff gefunden wurde",
    "dass die Wahlen im Herbst stattfinden",
    "dass der Flughafen später eröffnet wird",
    "dass junge Leute keine Wohnung mehr finden",
    "dass das Buch ein großer Erfolg ist",
)
GERMAN_END = (
    "obwohl die Kosten hoch sind",
    "weil das Wetter so schlecht war",
    "wenn genug Geld da ist",
    "und dafür gibt es gute Gründe",
    "aber nicht alle sind damit einverstanden",
    "wie die Zeitung am Dienstag berichtete",
    "denn die Zeit wird knapp",
    "",
)
