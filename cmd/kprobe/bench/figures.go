package bench

import "context"

func (m *meter) figures(ctx context.Context) {}
