"""The demo's prompts: six kinds of everyday work, sixteen of each, short enough for a small model."""

from __future__ import annotations

from acclimate.experiments.demo.code import CODE

_TRANSLATION = (
    "The train to the coast leaves at seven. Please bring a warm coat and some water.",
    "My sister works in a small bakery. She gets up at four every morning to bake the bread.",
    "The museum is closed on Monday. You can buy tickets for Tuesday at the front desk.",
    "Our garden has three apple trees. In autumn we make juice and share it with the neighbours.",
    "The doctor will see you at noon. Please fill in this form while you wait.",
    "We lost the key to the cellar. The locksmith says that he can come on Friday.",
    "The river is high after the rain. Do not cross the old bridge until the water falls.",
    "Your parcel is at the post office. You need your passport to collect it.",
    "The children are playing in the yard. Dinner will be ready in twenty minutes.",
    "This soup needs more salt. Let it cook for ten minutes and then taste it again.",
    "The hotel is near the station. Breakfast is served from six to ten in the blue room.",
    "I would like to rent two bicycles. We will bring them back before the shop closes.",
    "The meeting was moved to Thursday. Everybody should read the report before it starts.",
    "Snow fell during the night. The road to the village is open, but the school is closed.",
    "The cat sleeps on the window sill. It wakes up when the milk is poured.",
    "He repaired the radio with an old screwdriver. Now it plays music from morning to evening.",
)

_ARITHMETIC = (
    "Write the multiplication table of 7 from 7 x 1 to 7 x 12, one line each.",
    "Count from 3 to 60 in steps of 3 and write one number per line.",
    "Write the sums 1 + 1, 1 + 2, 1 + 3 and so on up to 1 + 15 with their results.",
    "List the squares of the numbers from 1 to 15 in the form 1 x 1 = 1.",
    "Start at 100 and subtract 4 again and again. Show every step until you are below 40.",
    "A baker sells 12 rolls an hour. Make a table of hours and rolls for 1 to 10 hours.",
    "Write the multiplication table of 9 from 9 x 1 to 9 x 12, one line each.",
    "Double the number 3 ten times and show every step as an equation.",
    "A ticket costs 5 dollars. List the price of 1, 2, 3 and so on up to 12 tickets.",
    "Write all even numbers from 2 to 60, separated by commas.",
    "Show how to add 128 and 367 step by step, and then check the result by subtracting.",
    "A tank holds 200 litres and loses 8 litres a day. List what is left after each of ten days.",
    "Write the multiplication table of 6 from 6 x 1 to 6 x 12, one line each.",
    "List the numbers from 1 to 20 and say for each whether it is even or odd.",
    "Convert 1 to 12 feet to inches, one line each, in the form 1 foot = 12 inches.",
    "Anna saves 15 dollars a week. Show her total after each week for twelve weeks.",
)

_QA = (
    (
        "The lighthouse at Cape Arden was built in 1872 from grey granite. Its lamp was turned by a "
        "clockwork until 1931, when it was replaced by an electric motor.|"
        "When was the lighthouse built, from what, and what turned its lamp until 1931?"
    ),
    (
        "The blue orchard bee nests in hollow stems. It flies in April and May and visits plum and "
        "apple blossom. It does not make honey.|Where does the blue orchard bee nest, and when?"
    ),
    (
        "Line 4 runs from the harbour to the university every eight minutes. On Sundays it runs every "
        "fifteen minutes and stops at the zoo.|How often does line 4 run, and what is different on "
        "Sundays?"
    ),
    (
        "The recipe needs 500 grams of flour, 300 grams of water, 10 grams of salt and a little yeast. "
        "The dough rests for twelve hours.|What does the recipe need, and how long does it rest?"
    ),
    (
        "Mount Tolver is 2,340 metres high. The north path takes six hours, the south path takes four "
        "hours and has a hut with twenty beds.|How high is Mount Tolver, and how do the paths differ?"
    ),
    (
        "The library lends books for four weeks and films for one week. A book that is late costs ten "
        "cents a day, a film costs one dollar a day.|What do late books and late films cost?"
    ),
    (
        "Copper conducts heat well and does not rust. That is why pans for sauces are often made of "
        "copper, with a thin layer of tin inside.|Why are pans for sauces often made of copper?"
    ),
    (
        "The old mill has two wheels. The large wheel drives the millstones, and the small wheel lifts "
        "the sacks of grain to the top floor.|What do the two wheels of the old mill do?"
    ),
    (
        "The ferry carries 30 cars and 200 passengers. In winter it sails only twice a day, because "
        "ice closes the northern channel at night.|How many cars does the ferry carry, and why does "
        "it sail only twice a day in winter?"
    ),
    (
        "Marta planted beans in the first bed, carrots in the second bed and onions in the third bed. "
        "Slugs ate all the beans in June.|What did Marta plant in each bed, and what happened in June?"
    ),
    (
        "The printer shows a green light when it is ready, a yellow light when paper is low and a red "
        "light when the cover is open.|What do the three lights of the printer mean?"
    ),
    (
        "The town hall clock stopped at ten past nine on the day of the flood. The mayor decided to "
        "leave it that way in memory of the flood.|Why does the town hall clock show ten past nine?"
    ),
    (
        "A falcon dives at more than 300 kilometres an hour. It strikes its prey in the air and then "
        "eats it on the ground or on a high ledge.|How does a falcon hunt, and where does it eat?"
    ),
    (
        "The theatre has 420 seats. The first ten rows cost 40 dollars, the rows behind them cost 25 "
        "dollars, and students pay half.|What do seats cost in the theatre, and what do students pay?"
    ),
    (
        "The valley gets fog when cold air from the lake meets warm air from the fields. The fog lifts "
        "when the sun reaches the eastern slope.|When does the valley get fog, and when does it lift?"
    ),
    (
        "The courier leaves the depot at six, reaches the hospital at seven and the school at eight. "
        "In the afternoon he drives the same way back.|Where is the courier at six, seven and eight?"
    ),
)

_SUMMARY = (
    (
        "The village of Orrin has no shop any more. Twice a week a yellow van brings bread, milk and "
        "newspapers. The driver knows everybody by name and also carries letters and medicine. When "
        "the road is blocked by snow, the people of Orrin share what they have."
    ),
    (
        "A team of divers found a wooden ship near the island of Tarsk. The ship sank about 300 years "
        "ago with a load of copper and glass. The cold water kept the wood in good condition. The "
        "divers will bring up the glass first and leave the ship where it is."
    ),
    (
        "Heat pumps move heat from the outside air into a house. They use one unit of electricity to "
        "move about three units of heat. In very cold weather they need more electricity. A well "
        "insulated house needs a smaller heat pump and less electricity."
    ),
    (
        "The city will close Mill Street to cars in May. Trees, benches and a bicycle path will take "
        "the place of the parking spaces. Shop owners fear that customers will stay away. The city "
        "says that in other streets the number of customers went up after the cars were gone."
    ),
    (
        "Crows can remember the faces of people who were unkind to them. They warn other crows with a "
        "loud call. Even young crows that never met these people learn to call at them. The memory "
        "can last for several years."
    ),
    (
        "The school band practised all winter for the spring concert. On the day of the concert the "
        "power failed. The band played by candle light, without microphones, and the audience was so "
        "quiet that every note could be heard. Many said it was the best concert of the year."
    ),
    (
        "Rice can be grown in fields that are flooded only some of the time. This saves a third of the "
        "water and does not lower the harvest. It also lowers the amount of methane from the fields. "
        "Farmers need to measure the water level with a simple pipe."
    ),
    (
        "The new library has a room where nobody may speak and a room where everybody may speak. "
        "Between the two rooms is a glass wall. Students like the quiet room before their exams. "
        "Parents with small children like the other room, which has a carpet and low shelves."
    ),
    (
        "A mountain rescue team was called out forty times last summer. In half of the cases the "
        "people were lost because their phones had no power. The team asks hikers to carry a paper "
        "map and to tell somebody where they are going. A whistle also helps."
    ),
    (
        "Old fishing nets are a danger to seals and turtles. A factory in the harbour now buys the old "
        "nets, cleans them and turns them into thread. The thread is used for carpets and bags. The "
        "fishermen are paid by weight and bring in old nets instead of dropping them in the sea."
    ),
    (
        "The night train returned after twenty years. It leaves the capital at nine in the evening and "
        "reaches the southern coast at seven in the morning. The cabins have beds for two or four "
        "people. Tickets for July were sold out in three days."
    ),
    (
        "Moss grows on the north side of many walls, because the north side stays damp. It has no "
        "roots and takes in water through its leaves. In a dry summer moss turns brown and seems dead. "
        "After the first rain it turns green again within an hour."
    ),
    (
        "The bridge over the Lenn was built for horses and carts. Today 9,000 cars cross it every day. "
        "Engineers found cracks in two of its five arches. The bridge will be closed for a year, and "
        "a temporary bridge of steel will carry the cars."
    ),
    (
        "Tea was once pressed into bricks so that it could be carried over the mountains. A brick "
        "lasted for years and could be used as money. To make tea, a piece was broken off and boiled "
        "with salt and butter. In some places it is still made that way."
    ),
    (
        "The hospital changed the way it plans its nights. Nurses now choose their own shifts on a "
        "shared screen, and a simple rule settles conflicts. Fewer nurses are ill, and fewer leave. "
        "The hospital will use the same rule for doctors."
    ),
    (
        "A baker in the north of the country makes bread from peas. Peas need no fertiliser and grow "
        "well in the cold. The bread is dark green and tastes of nuts. At first only tourists bought "
        "it, but now half of the village eats it every day."
    ),
)

_PROSE = (
    "Write a short story about a clockmaker who can hear what clocks are thinking.",
    "Describe a city at the bottom of the sea as a traveller would see it for the first time.",
    "Write a letter from an old sailor to the storm that sank his ship.",
    "Tell a bedtime story about a fox who is afraid of the dark.",
    "Describe the last evening of summer in a village in the hills.",
    "Write the opening of a novel about a woman who inherits a railway station.",
    "Tell the story of two brothers who have not spoken for thirty years.",
    "Write about a musician who finds a melody that nobody can remember.",
    "Describe a market on another planet with all its smells and sounds.",
    "Write a short speech for the opening of a very small museum.",
    "Tell a story in which a letter arrives a hundred years late.",
    "Write about a gardener who grows a tree that has no shadow.",
    "Describe a long journey by train through a country in winter.",
    "Write a short story about a painter who uses only one colour.",
    "Tell the story of a lighthouse keeper and the ship that came back.",
    "Write about the first morning after a very long night.",
)

PROMPTS: dict[str, tuple[str, ...]] = {
    "translation": tuple(
        f"Translate into French. Repeat each sentence before its translation.\n\n{text}"
        for text in _TRANSLATION
    ),
    "code": CODE,
    "arithmetic": _ARITHMETIC,
    "qa": tuple(
        "Answer from the text, in full sentences.\n\n{}\n\nQuestion: {}".format(*text.split("|"))
        for text in _QA
    ),
    "summary": tuple(
        f"Summarise this text in two sentences, in its own words.\n\n{text}" for text in _SUMMARY
    ),
    "prose": _PROSE,
}
"""Prompts by domain.

>>> {domain: len(prompts) for domain, prompts in PROMPTS.items()}
{'translation': 16, 'code': 16, 'arithmetic': 16, 'qa': 16, 'summary': 16, 'prose': 16}
"""
