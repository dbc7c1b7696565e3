"""Operations that change or clean a location. Each decides on the state, commits, and only then deletes objects."""
