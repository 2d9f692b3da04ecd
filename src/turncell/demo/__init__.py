"""`turncell demo`: the main job with no account and no network, nothing mocked but the model."""
