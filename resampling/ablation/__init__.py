"""Action ablation: which kind of action does the gain run through?"""
