"""Other engines' and papers' rules as policies, one file each, labelled with what they follow."""
