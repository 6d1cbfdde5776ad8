"""What a training step runs on: torch.cuda, an emulated device and the host behind one interface; networks to train."""
