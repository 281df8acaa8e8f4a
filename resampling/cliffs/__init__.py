"""At which token was a run won or lost?"""
